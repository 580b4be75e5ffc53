"""What every choice's responses need, whatever their wire shape."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from engine_ext import FrameTemplate
from unpaced.completion.logprobs import token_probs
from unpaced.completion.sequence_text import SequenceText
from unpaced.http.errors import ApiError, error_frame
from unpaced.request.effective_params import EffectiveParams
from unpaced.request.prompt import Prompt
from unpaced.schemas.completion import CompletionBody

if TYPE_CHECKING:
    from engine_ext import TokenEvent


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """What the choices of one request share. `created` is seconds since 1970."""

    body: CompletionBody
    settings: EffectiveParams
    model: str
    fingerprint: str
    completion_id: str
    created: int
    pieces: list[bytes]
    pieces_special: Sequence[bytes]
    eog_tokens: Sequence[int]
    is_sentencepiece: bool

    def of_child(self, child: int) -> "ResponseFacts":
        """For choice number `child` of a prompt."""
        settings = self.settings.of_child(child)
        return self if settings is self.settings else replace(self, settings=settings)

    @property
    def is_plain(self) -> bool:
        """Whether a token's event holds text and nothing that must be looked up."""
        body = self.body
        return not (body.n_probs or body.timings_per_token or body.verbose or body.echo)


def sse(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


def named_sse(body: dict[str, Any]) -> bytes:
    """One server-sent event that bears its `type` as its name too."""
    name: str = body["type"]
    return b"event: " + name.encode() + b"\n" + sse(body)


class ChoiceWriter(ABC):
    """Writes one choice: its stream's events, or its part of a whole response.

    For a stream call `start` once, then `token` for each token, `rest` for text held back to the
    end, and `final`. For a whole response call `keep` for each token, then `respond`.
    """

    done: ClassVar[bytes] = b""
    """What follows the last choice's final event."""
    ping: ClassVar[bytes] = b":\n\n"
    """What keeps a silent stream alive."""

    def __init__(self, facts: ResponseFacts, prompt: Prompt, sequence_text: SequenceText) -> None:
        self.facts = facts
        self.prompt = prompt
        self.sequence_text = sequence_text
        self.content: list[str] = []
        self.tokens: list[int] = []
        self.probs: list[dict[str, Any]] = []

    @classmethod
    @abstractmethod
    def respond(cls, writers: "Sequence[Any]") -> Any:
        """The body of a response that does not stream, from its choices in order."""

    def precompute(self) -> None:  # noqa: B027 - most shapes have nothing to precompute
        """Make what of the answer does not depend on its tokens; called while the engine computes
        the prompt, so that nobody waits for it."""

    def start(self) -> bytes:
        """Events before the first token."""
        return b""

    @abstractmethod
    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's event; `text` is what it made final, often less or more than its own."""

    def template(self) -> FrameTemplate | None:
        """What `token` would write for every further token; None where it must see them."""
        return None

    def framed(self, text: str) -> None:  # noqa: B027 - most shapes have no use for it
        """The text that went out by the template, where the template keeps it."""

    @abstractmethod
    def rest(self, text: str) -> bytes:
        """Text that was held back until the end."""

    @abstractmethod
    def progress(self, event: "TokenEvent") -> bytes:
        """The prompt's progress; `event` is STARTED or PREFILL."""

    @abstractmethod
    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """The choice's last event. `others`: all choices if this is the last one to end."""

    def failure(self, error: ApiError) -> bytes:
        """The last event of a stream that failed."""
        return error_frame(error)

    def prompt_logprob(self, event: "TokenEvent") -> None:
        """One PROMPT_LOGPROB event; used by shapes that echo the prompt."""
        del event

    def keep(self, event: "TokenEvent", text: str) -> None:
        """One token of a response that does not stream."""
        self.content.append(text)
        if self.facts.body.return_tokens:
            self.tokens.append(event.token)
        if self.facts.body.n_probs:
            self.probs.append(self.probs_of(event))

    def cut(self, line: int) -> None:
        """Keep what comes before this line, counted from 0, and its indentation, of a text that
        did not stream."""
        lines = "".join(self.content).split("\n")
        last = lines[line] if line < len(lines) else ""
        indentation = last[: len(last) - len(last.lstrip(" \t"))]
        self.content[:] = ["\n".join([*lines[:line], indentation])]

    def drop_probs(self, n: int) -> None:
        """Leave out the last `n` tokens' probabilities: those of a stop string."""
        if n > 0:
            del self.probs[-n:]

    def probs_of(self, event: "TokenEvent") -> dict[str, Any]:
        """Probabilities of one token that was drawn."""
        post_sampling = bool(self.facts.body.post_sampling_probs)
        return self._probs(event, post_sampling=post_sampling)

    def prompt_probs_of(self, event: "TokenEvent") -> dict[str, Any]:
        """Probabilities of one prompt token; none was drawn, so they are those before sampling."""
        return self._probs(event, post_sampling=False)

    def _probs(self, event: "TokenEvent", *, post_sampling: bool) -> dict[str, Any]:
        n_probs = self.facts.body.n_probs or 0
        return token_probs(event, self.facts.pieces, n_probs, post_sampling=post_sampling)

    def progress_json(self, event: "TokenEvent") -> dict[str, Any]:
        """llama-server's `prompt_progress`."""
        sequence_text = self.sequence_text
        return {
            "total": sequence_text.timings.n_prompt,
            "cache": sequence_text.timings.n_cached,
            "processed": sequence_text.timings.n_processed,
            "time_ms": (event.t_us - sequence_text.timings.start_us) // 1000,
        }
