"""Token probabilities as llama-server shows them, and in OpenAI's older completions shape."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
    """`tokens`, `token_logprobs`, `top_logprobs`, `text_offset`: what evaluation tools read.

    The first prompt token has no probability: null. Offsets are characters into the choice's text.
    """

    def __init__(self, pieces: Sequence[bytes], n_probs: int) -> None:
        self._pieces = pieces
        self._n_probs = n_probs
        self._offset = 0
        self._entries: list[tuple[str, float | None, dict[str, float] | None, int]] = []

    def add_prompt_start(self, token: int, n_text_chars_skipped: int) -> None:
        """The first prompt token. The text shown may lack its first characters (a space)."""
        self._add(token, None, None)
        self._offset -= n_text_chars_skipped

    def add(self, event: "TokenEvent") -> None:
        """A PROMPT_LOGPROB or TOKEN event."""
        top: dict[str, float] = {}
        for token, value in event.top_logprobs[: self._n_probs]:
            top.setdefault(self._text(token), _finite(value))
        if self._n_probs:
            top.setdefault(self._text(event.token), _finite(event.logprob))
        self._add(event.token, _finite(event.logprob), top or None)

    def take(self) -> dict[str, Any]:
        """Everything since the last call."""
        entries, self._entries = self._entries, []
        return {
            "tokens": [entry[0] for entry in entries],
            "token_logprobs": [entry[1] for entry in entries],
            "top_logprobs": [entry[2] for entry in entries],
            "text_offset": [entry[3] for entry in entries],
        }

    def _add(self, token: int, logprob: float | None, top: dict[str, float] | None) -> None:
        text = self._text(token)
        self._entries.append((text, logprob, top, max(0, self._offset)))
        self._offset += len(text)

    def _text(self, token: int) -> str:
        return self._pieces[token].decode(errors="replace")


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _LOWEST
