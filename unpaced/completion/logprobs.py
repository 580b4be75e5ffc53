"""Token probabilities as llama-server shows them, and in OpenAI's older completions shape."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from unpaced.completion.utf8_prefix import decode_prefix

if TYPE_CHECKING:
    from engine_ext import TokenEvent

_LOWEST: Final = -3.4028234663852886e38
"""JSON has no -inf; llama-server writes the lowest float."""


def token_probs(
    event: "TokenEvent", pieces: Sequence[bytes], n_probs: int, *, post_sampling: bool
) -> dict[str, Any]:
    """One entry of `completion_probabilities` or of `logprobs.content`."""
    key, top_key = ("prob", "top_probs") if post_sampling else ("logprob", "top_logprobs")
    top = event.top_logprobs[:n_probs]
    if post_sampling:
        top = [(token, value) for token, value in top if value > 0.0]
    entry = _entry(event.token, event.logprob, pieces, key)
    entry[top_key] = [_entry(token, value, pieces, key) for token, value in top]
    return entry


def unknown_probs(token: int, pieces: Sequence[bytes]) -> dict[str, Any]:
    """The entry of a prompt's first token: nothing comes before it, so it has no probability."""
    return _entry(token, 0.0, pieces, "logprob") | {"logprob": None, "top_logprobs": []}


def _entry(token: int, value: float, pieces: Sequence[bytes], key: str) -> dict[str, Any]:
    piece = pieces[token]
    return {
        "id": token,
        "token": whole_text(piece),
        "bytes": list(piece),
        key: value if math.isfinite(value) else _LOWEST,
    }


def whole_text(piece: bytes) -> str:
    """A token's text without the beginning of a character that the next token ends."""
    end = len(piece)
    for i in range(max(0, end - 3), end):
        lead = piece[i]
        n_bytes = 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4 if lead >> 3 == 30 else 1
        if i + n_bytes > end:
            end = i
            break
    return piece[:end].decode(errors="replace")


class LegacyLogprobs:
    """`tokens`, `token_logprobs`, `top_logprobs`, `text_offset`: OpenAI's older shape.

    The tokens joined are the text: one that ends within a character is "", and the one that
    completes it has it. The first prompt token has no probability: null. Offsets are characters
    into the choice's text. With `post_sampling` the events of drawn tokens hold probabilities.
    """

    def __init__(
        self, pieces: Sequence[bytes], n_probs: int, *, post_sampling: bool = False
    ) -> None:
        self._pieces = pieces
        self._n_probs = n_probs
        self._post_sampling = post_sampling
        self._partial = b""
        self._offset = 0
        self._entries: list[tuple[str, float | None, dict[str, float] | None, int]] = []

    def add_prompt_start(self, part: bytes) -> None:
        """The first prompt token, which stands for this part of the text."""
        self._add(part, None, None)

    def add_prompt(self, event: "TokenEvent", part: bytes) -> None:
        """A PROMPT_LOGPROB event; its token stands for this part of the text."""
        self._add(part, _finite(event.logprob), self._top(event, _finite))

    def add(self, event: "TokenEvent") -> None:
        """A TOKEN event."""
        value_of = _log if self._post_sampling else _finite
        top = self._top(event, value_of)
        self._add(self._pieces[event.token], value_of(event.logprob), top)

    def drop(self, n: int) -> None:
        """Leave out the last `n` tokens: those of a stop string."""
        if n > 0:
            del self._entries[-n:]

    def finish(self) -> None:
        """No token follows: a character that was begun is U+FFFD, as in the text."""
        if self._partial and self._entries:
            rest = self._partial.decode(errors="replace")
            text, logprob, top, offset = self._entries[-1]
            self._entries[-1] = (text + rest, logprob, top, offset)
            self._partial = b""

    def take(self) -> dict[str, Any]:
        """Everything since the last call."""
        entries, self._entries = self._entries, []
        return {
            "tokens": [entry[0] for entry in entries],
            "token_logprobs": [entry[1] for entry in entries],
            "top_logprobs": [entry[2] for entry in entries],
            "text_offset": [entry[3] for entry in entries],
        }

    def _top(
        self, event: "TokenEvent", value_of: Callable[[float], float]
    ) -> dict[str, float] | None:
        top: dict[str, float] = {}
        if self._n_probs:
            for token, value in (
                *event.top_logprobs[: self._n_probs],
                (event.token, event.logprob),
            ):
                top.setdefault(self._pieces[token].decode(errors="replace"), value_of(value))
        return top or None

    def _add(self, part: bytes, logprob: float | None, top: dict[str, float] | None) -> None:
        data = self._partial + part
        text, n_used = decode_prefix(data)
        self._partial = data[n_used:]
        self._entries.append((text, logprob, top, self._offset))
        self._offset += len(text)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0.0 else _LOWEST


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _LOWEST
