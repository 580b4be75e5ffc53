"""llama-server's own shape, of /completion and /completions.

Source: llama.cpp 0c1e57098, tools/server/server-task.cpp (to_json_non_oaicompat).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from engine_ext import FrameField, FrameTemplate
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter, ResponseFacts, sse
from unpaced.request.prompt import Prompt

if TYPE_CHECKING:
    from engine_ext import TokenEvent


class NativeWriter(ChoiceWriter):
    """One choice of /completion. A native stream has no [DONE]."""

    def __init__(self, facts: ResponseFacts, prompt: Prompt, sequence_text: SequenceText) -> None:
        super().__init__(facts, prompt, sequence_text)
        self._head = b'data: {"index":%d,"content":' % sequence_text.index
        self._tail = b',"tokens":[%%d],"stop":false,"id_slot":-1,"tokens_predicted":%%d,' + (
            b'"tokens_evaluated":%d}\n\n' % len(prompt.tokens)
        )
        self._tail = self._tail.replace(b"%%", b"%")
        self._known: tuple[dict[str, Any], str] | None = None

    def precompute(self) -> None:
        """The settings and the prompt's text: milliseconds for a long prompt."""
        facts = self.facts
        self._known = facts.settings.to_json(facts.eog_tokens), self._shown_prompt()

    @classmethod
    def respond(cls, writers: "Sequence[NativeWriter]") -> Any:
        """One object, or an array where there are several choices."""
        bodies = [writer.whole() for writer in writers]
        return bodies[0] if len(bodies) == 1 else bodies

    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's event."""
        if self.facts.is_plain and not self.sequence_text.shows_timings:
            tail = self._tail % (event.token, self.sequence_text.timings.n_decoded)
            return self._head + orjson.dumps(text) + tail
        return sse(self.token_json(event, text))

    def template(self) -> FrameTemplate | None:
        """Frames of `token`'s usual events."""
        if not self.facts.is_plain:
            return None
        before, between, after = self._tail.split(b"%d")
        text, token, number = FrameField
        return FrameTemplate((self._head, text, before, token, between, number, after))

    def token_json(self, event: "TokenEvent", text: str) -> dict[str, Any]:
        """One token's event as an object."""
        body = self._partial(text, [event.token])
        if self.facts.body.timings_per_token or self.sequence_text.shows_timings:
            body["timings"] = self.sequence_text.timings.to_json()
        if self.facts.body.n_probs:
            body["completion_probabilities"] = [self.probs_of(event)]
        return body

    def rest(self, text: str) -> bytes:
        """Text that was held back until the end."""
        return sse(self._partial(text, []))

    def progress(self, event: "TokenEvent") -> bytes:
        """The prompt's progress; llama-server writes a token 0 that means nothing."""
        body = self._partial("", [0])
        if self.facts.body.timings_per_token:
            body["timings"] = self.sequence_text.timings.to_json()
        return sse(body | {"prompt_progress": self.progress_json(event)})

    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """The whole object, without the content that was sent before."""
        del others
        return sse(self.whole())

    def whole(self) -> dict[str, Any]:
        """The object of one choice, its `response_fields` picked out where asked for."""
        body = self.whole_json()
        fields = self.facts.body.response_fields
        return body if not fields else _pick(body, fields)

    def whole_json(self) -> dict[str, Any]:
        """The object of one choice."""
        facts, sequence_text = self.facts, self.sequence_text
        timings = sequence_text.timings
        if self._known is None:
            self.precompute()
        assert self._known is not None
        settings, prompt = self._known
        body: dict[str, Any] = {
            "index": sequence_text.index,
            "content": "".join(self.content),
            "tokens": self.tokens,
            "id_slot": sequence_text.slot,
            "stop": True,
            "model": facts.model,
            "tokens_predicted": timings.n_decoded,
            "tokens_evaluated": timings.n_prompt,
            "generation_settings": settings,
            "prompt": prompt,
            "has_new_line": sequence_text.has_new_line,
            "truncated": sequence_text.truncated,
            "stop_type": sequence_text.stop_type,
            "stopping_word": sequence_text.stopping_word,
            "tokens_cached": sequence_text.n_cells,
            "timings": timings.to_json(),
        }
        if self.probs:
            body["completion_probabilities"] = self.probs
        return body

    def _shown_prompt(self) -> str:
        """The prompt's text, control tokens spelled out."""
        pieces = self.facts.pieces_special
        text = b"".join(map(pieces.__getitem__, self.prompt.tokens)).decode(errors="replace")
        # SentencePiece tokenisers put a space in front of a text; it does not belong to the prompt.
        return text.removeprefix(" ") if self.facts.is_sentencepiece else text

    def _partial(self, text: str, tokens: list[int]) -> dict[str, Any]:
        return {
            "index": self.sequence_text.index,
            "content": text,
            "tokens": tokens,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self.sequence_text.timings.n_decoded,
            "tokens_evaluated": len(self.prompt.tokens),
        }


def _pick(body: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The values at `paths` ("generation_settings/seed") by those names; missing ones left out."""
    picked: dict[str, Any] = {}
    for path in paths:
        value: Any = body
        for key in path.split("/"):
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            picked[path] = value
    return picked
