"""OpenAI's text completion, as llama-server writes it.

Source: llama.cpp 0c1e57098, tools/server/server-task.cpp (to_json_oaicompat).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from engine_ext import FrameField, FrameTemplate
from unpaced.completion.logprobs import LegacyLogprobs, unknown_probs
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter, ResponseFacts, sse
from unpaced.request.prompt import Prompt
from unpaced.writers.echo import cut_text
from unpaced.writers.native import NativeWriter

if TYPE_CHECKING:
    from engine_ext import TokenEvent


class OpenAiWriter(ChoiceWriter):
    """One choice of /v1/completions."""

    done: ClassVar[bytes] = b"data: [DONE]\n\n"

    def __init__(self, facts: ResponseFacts, prompt: Prompt, sequence_text: SequenceText) -> None:
        super().__init__(facts, prompt, sequence_text)
        self._head = b'data: {"choices":[{"text":'
        self._tail = (
            b',"index":%d,"logprobs":null,"finish_reason":null}],' % sequence_text.index
            + orjson.dumps(self._frame())[1:]
            + b"\n\n"
        )
        self._native = NativeWriter(facts, prompt, sequence_text)
        self._legacy: LegacyLogprobs | None = None
        self._echo = ""
        self._parts_left: Iterator[bytes] = iter(())
        self._echo_probs: list[dict[str, Any]] = []
        if facts.body.legacy_logprobs and (facts.body.echo or facts.body.n_probs):
            self._legacy = LegacyLogprobs(
                facts.pieces,
                facts.body.n_probs or 0,
                post_sampling=bool(facts.body.post_sampling_probs),
            )
        if facts.body.echo:
            self._start_echo()

    def precompute(self) -> None:
        """What `verbose` shows."""
        if self.facts.body.verbose:
            self._native.precompute()

    # -- stream ---------------------------------------------------------------------------------

    def start(self) -> bytes:
        """The echoed prompt, where asked for."""
        if not self.facts.body.echo:
            return b""
        logprobs: dict[str, Any] | None = None
        if self._legacy is not None:
            logprobs = self._legacy.take()
        elif self._echo_probs:
            logprobs = {"content": self._echo_probs}
        return sse({"choices": [self._choice(self._echo, logprobs, None)]} | self._frame())

    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's event."""
        shows_timings = self.sequence_text.shows_timings
        if self.facts.is_plain and not shows_timings:
            return self._head + orjson.dumps(text) + self._tail
        logprobs: dict[str, Any] | None = None
        if self.facts.body.n_probs and not self._has_only_legacy:
            logprobs = {"content": [self.probs_of(event)]}
        if self._legacy is not None:
            self._legacy.add(event)
            logprobs = (logprobs or {}) | self._legacy.take()
        body = {"choices": [self._choice(text, logprobs, None)]} | self._frame()
        if self.facts.body.verbose:
            body["__verbose"] = self._native.token_json(event, text)
        if self.facts.body.timings_per_token or shows_timings:
            body["timings"] = self.sequence_text.timings.to_json()
        return sse(body)

    def template(self) -> FrameTemplate | None:
        """Frames of `token`'s usual events."""
        if not self.facts.is_plain:
            return None
        return FrameTemplate((self._head, FrameField.TEXT, self._tail))

    def rest(self, text: str) -> bytes:
        """Text that was held back until the end."""
        return sse({"choices": [self._choice(text, None, None)]} | self._frame())

    def progress(self, event: "TokenEvent") -> bytes:
        """The prompt's progress, in a chunk without text."""
        body = {"choices": [self._choice("", None, None)]} | self._frame()
        if self.facts.body.timings_per_token:
            body["timings"] = self.sequence_text.timings.to_json()
        return sse(body | {"prompt_progress": self.progress_json(event)})

    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """The finish reason; the request's usage with the last choice's.

        Where `include_usage` asks for it the usage has an event without choices, as OpenAI's: some
        clients look for it nowhere else.
        """
        choices = [self._choice("", None, self.sequence_text.finish_reason)]
        body = self._end(others)
        if "usage" not in body or not (self.facts.body.stream_options or {}).get("include_usage"):
            return sse({"choices": choices} | body)
        return sse({"choices": choices} | self._frame()) + sse({"choices": []} | body)

    # -- whole ----------------------------------------------------------------------------------

    def prompt_logprob(self, event: "TokenEvent") -> None:
        """One prompt token's logprob, where echoed."""
        if self._legacy is not None:
            self._legacy.add_prompt(event, next(self._parts_left))
        else:
            self._echo_probs.append(self.prompt_probs_of(event))

    def keep(self, event: "TokenEvent", text: str) -> None:
        """One token of a response that does not stream."""
        super().keep(event, text)
        if self._legacy is not None:
            self._legacy.add(event)

    def drop_probs(self, n: int) -> None:
        """Drop them as every shape does, and from OpenAI's lists."""
        super().drop_probs(n)
        if self._legacy is not None:
            self._legacy.drop(n)

    def whole_choice(self) -> dict[str, Any]:
        """This choice in the list of choices."""
        logprobs: dict[str, Any] | None = None
        if not self._has_only_legacy and (self.probs or self._echo_probs):
            logprobs = {"content": self._echo_probs + self.probs}
        if self._legacy is not None:
            self._legacy.finish()
            logprobs = (logprobs or {}) | self._legacy.take()
        text = self._echo + "".join(self.content)
        return self._choice(text, logprobs, self.sequence_text.finish_reason)

    @classmethod
    def respond(cls, writers: "Sequence[OpenAiWriter]") -> Any:
        """One object with all choices; `timings` are the first one's."""
        return {"choices": [writer.whole_choice() for writer in writers]} | writers[0]._end(writers)

    # -- parts ----------------------------------------------------------------------------------

    def _choice(
        self, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None
    ) -> dict[str, Any]:
        return {
            "text": text,
            "index": self.sequence_text.index,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }

    def _frame(self) -> dict[str, Any]:
        return {
            "created": self.facts.created,
            "model": self.facts.model,
            "system_fingerprint": self.facts.fingerprint,
            "object": "text_completion",
            "id": self.facts.completion_id,
        }

    def _end(self, others: "Sequence[ChoiceWriter] | None") -> dict[str, Any]:
        body = self._frame()
        completion_id = body.pop("id")
        if others is not None:
            body["usage"] = usage(others)
        body["id"] = completion_id
        if self.facts.body.verbose:
            body["__verbose"] = self._native_whole()
        body["timings"] = self.sequence_text.timings.to_json()
        return body

    def _native_whole(self) -> dict[str, Any]:
        self._native.content = self.content
        self._native.tokens = self.tokens
        self._native.probs = self.probs
        return self._native.whole_json()

    @property
    def _has_only_legacy(self) -> bool:
        """Whether OpenAI's lists stand alone: with a prompt llama-server's beside them would double
        an answer that is long already, and has no counterpart there."""
        return self._legacy is not None and bool(self.facts.body.echo)

    def _start_echo(self) -> None:
        facts, tokens = self.facts, self.prompt.tokens
        text = self.prompt.text
        parts = None
        if text is not None and self._legacy is not None:
            parts = cut_text(text, tokens, facts.pieces, facts.pieces_special)
        if text is None or (self._legacy is not None and parts is None):
            parts = [facts.pieces[token] for token in tokens]
            text = b"".join(parts).decode(errors="replace")
        self._echo = text
        if self._legacy is not None:
            assert parts is not None
            self._parts_left = iter(parts)
            self._legacy.add_prompt_start(next(self._parts_left))
        elif facts.body.n_probs:
            self._echo_probs = [unknown_probs(tokens[0], facts.pieces_special)]


def usage(writers: Sequence[ChoiceWriter]) -> dict[str, Any]:
    """Tokens of the whole request. A prompt counts once, however many choices it has."""
    n_prompt = n_cached = n_decoded = 0
    counted: set[int] = set()
    for writer in writers:
        timings = writer.sequence_text.timings
        n_decoded += timings.n_decoded
        if id(writer.prompt) not in counted:
            counted.add(id(writer.prompt))
            n_prompt += timings.n_prompt
            n_cached += timings.n_cached
    return {
        "completion_tokens": n_decoded,
        "prompt_tokens": n_prompt,
        "total_tokens": n_decoded + n_prompt,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }
