"""Anthropic's Messages API: one message, or its stream of content blocks.

Blocks follow one another, each with its own start and stop, as at Anthropic's.
Source: llama.cpp 0c1e57098, tools/server/server-task.cpp:731 (to_json_anthropic), and Anthropic's
API reference.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from engine_ext import FrameTemplate
from unpaced.chat.answer.delta import ChatDelta, ToolCallDelta
from unpaced.chat.compiled_chat import CompiledChat
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter, ResponseFacts, named_sse
from unpaced.http.errors import ApiError, anthropic_error
from unpaced.request.prompt import Prompt
from unpaced.writers.chat import ChatWriter

if TYPE_CHECKING:
    from engine_ext import TokenEvent

_TEXT_TAIL: Final = b"}}\n\n"


class MessagesWriter(ChatWriter):
    """The one choice of /v1/messages. `stops`: the stop strings that the client asked for."""

    done: ClassVar[bytes] = b""
    ping: ClassVar[bytes] = named_sse({"type": "ping"})

    def __init__(
        self,
        facts: ResponseFacts,
        prompt: Prompt,
        sequence_text: SequenceText,
        *,
        compiled: CompiledChat,
        stops: Sequence[str],
    ) -> None:
        super().__init__(facts, prompt, sequence_text, compiled=compiled)
        self._stops = stops
        self._n_blocks = 0
        self._open = ""  # what the open block is; a tool call's has its number in it
        self._text_head = b""

    # -- stream ---------------------------------------------------------------------------------

    def start(self) -> bytes:
        """The message without content."""
        message = self._message([], None, None) | {"usage": self._usage() | {"output_tokens": 0}}
        return named_sse({"type": "message_start", "message": message})

    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's events; there are none where no text is final yet."""
        del event
        return self.rest(text)

    def template(self) -> FrameTemplate | None:
        """Frames of the deltas of an open block of text."""
        if self._open != "text" or not self.parser.passes_text:
            return None
        return self._content_template(self._text_head, _TEXT_TAIL)

    def rest(self, text: str) -> bytes:
        """Text that became final."""
        return b"".join([self._events(delta) for delta in self.parser.push(text)])

    def progress(self, event: "TokenEvent") -> bytes:
        """Write nothing: the API has no word for it."""
        del event
        return b""

    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """What was held back, the end of the last block, why it ended and what it cost."""
        del others
        frames = [self._events(delta) for delta in self.finish()]
        reason, sequence = self._stop()
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        end = {"type": "message_delta", "delta": delta, "usage": self._usage()}
        frames += [self._close(), named_sse(end), named_sse({"type": "message_stop"})]
        return b"".join(frames)

    def failure(self, error: ApiError) -> bytes:
        """The error, and nothing after it."""
        return named_sse(anthropic_error(error))

    def _events(self, delta: ChatDelta) -> bytes:
        frames = b""
        if delta.reasoning:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            frames += self._switch("thinking", block)
            frames += self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            if self._open != "text":
                frames += self._switch("text", {"type": "text", "text": ""})
            frames += self._text_head + orjson.dumps(delta.content) + _TEXT_TAIL
        for call in delta.tool_calls:
            frames += self._call_events(call)
        return frames

    def _call_events(self, call: ToolCallDelta) -> bytes:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        frames = self._switch(f"tool {call.index}", block)
        if call.arguments:
            piece = {"type": "input_json_delta", "partial_json": call.arguments}
            frames += self._delta(piece)
        return frames

    def _switch(self, kind: str, block: dict[str, Any]) -> bytes:
        """Have a block of this kind open: the open one, or a new one after its end."""
        if self._open == kind:
            return b""
        frames = self._close()
        index = self._n_blocks
        self._n_blocks += 1
        self._open = kind
        self._text_head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"text_delta","text":' % index
        )
        start = {"type": "content_block_start", "index": index, "content_block": block}
        return frames + named_sse(start)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        index = self._n_blocks - 1
        return named_sse({"type": "content_block_delta", "index": index, "delta": delta})

    def _close(self) -> bytes:
        if not self._open:
            return b""
        frames = b""
        if self._open == "thinking":  # nothing to sign with, but clients wait for it
            frames = self._delta({"type": "signature_delta", "signature": ""})
        self._open = ""
        return frames + named_sse({"type": "content_block_stop", "index": self._n_blocks - 1})

    # -- whole ----------------------------------------------------------------------------------

    @classmethod
    def respond(cls, writers: "Sequence[ChatWriter]") -> Any:
        """The message."""
        writer = writers[0]
        assert isinstance(writer, MessagesWriter)
        blocks = _blocks(writer.message())
        reason, sequence = writer._stop()
        return writer._message(blocks, reason, sequence) | {"usage": writer._usage()}

    # -- parts ----------------------------------------------------------------------------------

    def _message(
        self, blocks: list[dict[str, Any]], reason: str | None, sequence: str | None
    ) -> dict[str, Any]:
        return {
            "id": "msg_" + self.facts.completion_id.partition("-")[2],
            "type": "message",
            "role": "assistant",
            "content": blocks,
            "model": self.facts.model,
            "stop_reason": reason,
            "stop_sequence": sequence,
        }

    def _stop(self) -> tuple[str, str | None]:
        """`stop_reason` and `stop_sequence`; the template's own stop strings are not named."""
        if self.finish_reason == "tool_calls":
            return "tool_use", None
        if self.finish_reason == "length":
            return "max_tokens", None
        word = self.sequence_text.stopping_word
        return ("stop_sequence", word) if word in self._stops else ("end_turn", None)

    def _usage(self) -> dict[str, int]:
        timings = self.sequence_text.timings
        return {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": timings.n_cached,
            "input_tokens": timings.n_prompt - timings.n_cached,
            "output_tokens": timings.n_decoded,
        }


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The content blocks of a chat message."""
    blocks: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        reasoning = message["reasoning_content"]
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": ""})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": name, "input": _input(arguments)}
        )
    return blocks


def _input(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object; empty where the model was cut off in the middle of them."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
