"""OpenAI's chat completion, as llama-server writes it.

Source: llama.cpp 0c1e57098, tools/server/server-task.cpp (to_json_oaicompat_chat,
to_json_oaicompat_chat_stream) and server-chat.cpp (server_chat_msg_diff_to_json_oaicompat).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from engine_ext import FrameField, FrameTemplate
from unpaced.chat.answer.delta import ChatDelta, ToolCallDelta
from unpaced.chat.compiled_chat import CompiledChat
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter, ResponseFacts, sse
from unpaced.request.prompt import Prompt
from unpaced.writers.native import NativeWriter
from unpaced.writers.openai import usage

if TYPE_CHECKING:
    from engine_ext import TokenEvent


class ChatWriter(ChoiceWriter):
    """One choice of /v1/chat/completions. Other chat APIs derive from it: `parser` is theirs too.

    `message` is the choice's whole message; only call it when the choice is over.
    """

    done: ClassVar[bytes] = b"data: [DONE]\n\n"

    def __init__(
        self,
        facts: ResponseFacts,
        prompt: Prompt,
        sequence_text: SequenceText,
        *,
        compiled: CompiledChat,
    ) -> None:
        super().__init__(facts, prompt, sequence_text)
        self.compiled = compiled
        self.parser = compiled.new_parser()
        self._is_finished = False
        head = b'data: {"choices":[{"finish_reason":null,"index":%d,"delta":{' % sequence_text.index
        self._content_head = head + b'"content":'
        self._reasoning_head = head + b'"reasoning_content":'
        self._tail = b"}}]," + orjson.dumps(self._frame())[1:] + b"\n\n"
        self._late_probs: list[dict[str, Any]] = []

    # -- stream ---------------------------------------------------------------------------------

    def start(self) -> bytes:
        """The event that says who speaks."""
        return sse(self._chunk({"role": "assistant", "content": None}))

    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's events; there are none where no text is final yet."""
        body = self.facts.body
        shows_timings = self.sequence_text.shows_timings
        if self.facts.is_plain and not shows_timings:
            return b"".join([self._plain(delta) for delta in self.parser.push(text)])
        if body.n_probs:
            self._late_probs.append(self.probs_of(event))
        chunks = [self._chunk(delta_json(delta)) for delta in self.parser.push(text)]
        if not chunks:
            return b""
        if self._late_probs:
            chunks[-1]["choices"][0]["logprobs"] = {"content": self._late_probs}
            self._late_probs = []
        if body.timings_per_token or shows_timings:
            chunks[-1]["timings"] = self.sequence_text.timings.to_json()
        return b"".join(map(sse, chunks))

    def template(self) -> FrameTemplate | None:
        """Frames of content's usual events, once nothing but content can follow."""
        if not (self.facts.is_plain and self.parser.passes_text):
            return None
        return self._content_template(self._content_head, self._tail)

    def framed(self, text: str) -> None:
        """It is content: the parser has let all of it pass."""
        self.parser.push(text)

    def rest(self, text: str) -> bytes:
        """Text that was held back until the end."""
        return b"".join([self._plain(delta) for delta in self.parser.push(text)])

    def progress(self, event: "TokenEvent") -> bytes:
        """The prompt's progress."""
        body = self._chunk({"role": "assistant", "content": None})
        if self.facts.body.timings_per_token:
            body["timings"] = self.sequence_text.timings.to_json()
        return sse(body | {"prompt_progress": self.progress_json(event)})

    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """What was held back, the finish reason, and usage if it is asked for."""
        chunks = [self._chunk(delta_json(delta)) for delta in self.finish()]
        chunks.append(self._chunk({}))
        choice = chunks[-1]["choices"][0]
        choice["finish_reason"] = self.finish_reason
        if self._late_probs:
            choice["logprobs"] = {"content": self._late_probs}
        if others is not None and (self.facts.body.stream_options or {}).get("include_usage"):
            frame = self._frame()
            chunks.append({"choices": []} | frame | {"usage": usage(others)})
        chunks[-1]["timings"] = self.sequence_text.timings.to_json()
        if self.facts.body.verbose:
            chunks[0]["__verbose"] = self.native_json()
        return b"".join(map(sse, chunks))

    # -- whole ----------------------------------------------------------------------------------

    def finish(self) -> list[ChatDelta]:
        """The parser's last deltas, once; a response that does not stream is parsed here."""
        if self._is_finished:
            return []
        self._is_finished = True
        deltas = self.parser.push("".join(self.content))
        return deltas + self.parser.finish()

    def message(self) -> dict[str, Any]:
        """The whole message."""
        self.finish()
        return self.parser.message()

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for the end; call `finish` before."""
        reason = self.sequence_text.finish_reason
        return "tool_calls" if reason == "stop" and self.parser.has_tool_calls else reason

    @classmethod
    def respond(cls, writers: "Sequence[ChatWriter]") -> Any:
        """One object with all choices; `timings` are the first one's."""
        first = writers[0]
        body: dict[str, Any] = {"choices": [writer._whole_choice() for writer in writers]}
        facts = first.facts
        body |= {
            "created": facts.created,
            "model": facts.model,
            "system_fingerprint": facts.fingerprint,
            "object": "chat.completion",
            "usage": usage(writers),
            "id": facts.completion_id,
        }
        if facts.body.verbose:
            body["__verbose"] = first.native_json()
        body["timings"] = first.sequence_text.timings.to_json()
        return body

    def native_json(self) -> dict[str, Any]:
        """The same choice in llama-server's own shape, for `verbose`."""
        native = NativeWriter(self.facts, self.prompt, self.sequence_text)
        native.content, native.tokens, native.probs = self.content, self.tokens, self.probs
        return native.whole_json()

    # -- parts ----------------------------------------------------------------------------------

    def _whole_choice(self) -> dict[str, Any]:
        message = self.message()
        choice = {
            "finish_reason": self.finish_reason,
            "index": self.sequence_text.index,
            "message": message,
        }
        if self.probs:
            choice["logprobs"] = {"content": self.probs}
        return choice

    def _plain(self, delta: ChatDelta) -> bytes:
        if delta.content:
            return self._content_head + orjson.dumps(delta.content) + self._tail
        if delta.reasoning:
            return self._reasoning_head + orjson.dumps(delta.reasoning) + self._tail
        return sse(self._chunk(delta_json(delta)))

    @staticmethod
    def _content_template(head: bytes, tail: bytes) -> FrameTemplate:
        return FrameTemplate((head, FrameField.TEXT, tail), skips_empty=True, keeps_text=True)

    def _chunk(self, delta: dict[str, Any]) -> dict[str, Any]:
        choice = {"finish_reason": None, "index": self.sequence_text.index, "delta": delta}
        return {"choices": [choice]} | self._frame()

    def _frame(self) -> dict[str, Any]:
        return {
            "created": self.facts.created,
            "id": self.facts.completion_id,
            "model": self.facts.model,
            "system_fingerprint": self.facts.fingerprint,
            "object": "chat.completion.chunk",
        }


def delta_json(delta: ChatDelta) -> dict[str, Any]:
    """A delta on the wire."""
    body: dict[str, Any] = {}
    if delta.reasoning:
        body["reasoning_content"] = delta.reasoning
    if delta.content:
        body["content"] = delta.content
    if delta.tool_calls:
        body["tool_calls"] = [_call_json(call) for call in delta.tool_calls]
    return body


def _call_json(call: ToolCallDelta) -> dict[str, Any]:
    body: dict[str, Any] = {"index": call.index}
    if call.id:
        body |= {"id": call.id, "type": "function"}
    function = {}
    if call.name:
        function["name"] = call.name
    if call.arguments:
        function["arguments"] = call.arguments
    if function:
        body["function"] = function
    return body
