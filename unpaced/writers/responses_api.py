"""OpenAI's Responses API: one response, or its stream of typed events.

Source: llama.cpp 0c1e57098, tools/server/server-task.cpp:525 (to_json_oaicompat_resp), and OpenAI's
API reference for what llama-server leaves out (indexes, sequence numbers, `...done` events).
"""

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from unpaced.chat.answer.delta import ChatDelta
from unpaced.chat.compiled_chat import CompiledChat
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter, ResponseFacts, named_sse
from unpaced.http.errors import ApiError
from unpaced.request.prompt import Prompt
from unpaced.writers.chat import ChatWriter
from unpaced.writers.output_item import CallItem, OutputItem, ReasoningItem, TextItem
from unpaced.writers.response_object import (
    call_item,
    message_item,
    reasoning_item,
    response_object,
    usage_object,
)

if TYPE_CHECKING:
    from engine_ext import TokenEvent

Event = dict[str, Any]


class ResponsesWriter(ChatWriter):
    """The one choice of /v1/responses. `request` is the client's body."""

    done: ClassVar[bytes] = b""

    def __init__(
        self,
        facts: ResponseFacts,
        prompt: Prompt,
        sequence_text: SequenceText,
        *,
        compiled: CompiledChat,
        request: dict[str, Any],
    ) -> None:
        super().__init__(facts, prompt, sequence_text, compiled=compiled)
        self._request = request
        self._id = "resp_" + facts.completion_id.partition("-")[2]
        self._n_events = 0
        self._n_reasoning = 0
        self._is_created = False
        self._item: OutputItem | None = None
        self._output: list[dict[str, Any]] = []

    # -- stream ---------------------------------------------------------------------------------

    def start(self) -> bytes:
        """The response without output."""
        return b"".join(map(self._frame_of, self._begin()))

    def token(self, event: "TokenEvent", text: str) -> bytes:
        """One token's events; there are none where no text is final yet."""
        del event
        deltas = self.parser.push(text)
        if any(delta.reasoning for delta in deltas):
            self._n_reasoning += 1
        if not self.facts.is_plain:
            return self._with_figures(self._events(deltas))
        item = self._item
        if len(deltas) == 1 and deltas[0].content and isinstance(item, TextItem):
            return self._text_event(item, deltas[0].content)
        return b"".join(map(self._frame_of, self._events(deltas)))

    def template(self) -> None:
        """Its events are numbered and have their text collected."""

    def rest(self, text: str) -> bytes:
        """Text that was held back until the end."""
        return b"".join(map(self._frame_of, self._events(self.parser.push(text))))

    def progress(self, event: "TokenEvent") -> bytes:
        """The prompt's progress, in an event that says that the response is in progress."""
        events = self._begin() or [self._status_event("response.in_progress")]
        events[-1]["prompt_progress"] = self.progress_json(event)
        if self.facts.body.timings_per_token:
            events[-1]["timings"] = self.sequence_text.timings.to_json()
        return b"".join(map(self._frame_of, events))

    def final(self, others: "Sequence[ChoiceWriter] | None") -> bytes:
        """What was held back, the end of the last item, and the whole response.

        The event is `response.completed` also where the limit cut the answer, as in llama-server;
        the response's `status` tells.
        """
        del others
        events = self._events(self.finish()) + self._close(self._status)
        response = self._response(self._status, self._output)
        timings = self.sequence_text.timings.to_json()
        events.append({"type": "response.completed", "response": response, "timings": timings})
        return b"".join(map(self._frame_of, events))

    def failure(self, error: ApiError) -> bytes:
        """OpenAI's error event, which holds llama-server's error object too."""
        body = error.to_json()
        detail = {"code": error.kind, "message": str(error), "param": error.param}
        return self._frame_of({"type": "error"} | detail | body)

    # -- whole ----------------------------------------------------------------------------------

    def keep(self, event: "TokenEvent", text: str) -> None:
        """One token of a response that does not stream."""
        del event
        if any(delta.reasoning for delta in self.parser.push(text)):
            self._n_reasoning += 1

    @classmethod
    def respond(cls, writers: "Sequence[ChatWriter]") -> Any:
        """The response."""
        writer = writers[0]
        assert isinstance(writer, ResponsesWriter)
        message = writer.message()
        status = writer._status
        output: list[dict[str, Any]] = []
        if message.get("reasoning_content"):
            output.append(reasoning_item(new_id("rs"), message["reasoning_content"], "completed"))
        if message.get("content"):
            output.append(message_item(new_id("msg"), message["content"], "completed"))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            output.append(
                call_item(call["id"], function["name"], function["arguments"], "completed")
            )
        if output:
            output[-1]["status"] = status
        return writer._response(status, output)

    # -- events ---------------------------------------------------------------------------------

    def _begin(self) -> list[Event]:
        """The first two events, once."""
        if self._is_created:
            return []
        self._is_created = True
        return [self._status_event(f"response.{word}") for word in ("created", "in_progress")]

    def _status_event(self, kind: str) -> Event:
        return {"type": kind, "response": self._response("in_progress", ())}

    def _events(self, deltas: Sequence[ChatDelta]) -> list[Event]:
        events: list[Event] = []
        for delta in deltas:
            if delta.reasoning:
                if not isinstance(self._item, ReasoningItem):
                    events += self._open(ReasoningItem(new_id("rs"), self._index + 1))
                events += self._add(delta.reasoning)
            if delta.content:
                if not isinstance(self._item, TextItem):
                    events += self._open(TextItem(new_id("msg"), self._index + 1))
                events += self._add(delta.content)
            for call in delta.tool_calls:
                if not isinstance(self._item, CallItem) or self._item.number != call.index:
                    item = CallItem(call.id, self._index + 1, name=call.name, number=call.index)
                    events += self._open(item)
                if call.arguments:
                    events += self._add(call.arguments)
        return events

    @property
    def _index(self) -> int:
        """Of the open item, or of the last one."""
        return len(self._output) - (self._item is None)

    def _open(self, item: OutputItem) -> list[Event]:
        events = self._close("completed")
        self._item = item
        return events + item.opening()

    def _add(self, text: str) -> list[Event]:
        assert self._item is not None
        return [self._item.add(text)]

    def _close(self, status: str) -> list[Event]:
        if self._item is None:
            return []
        events = self._item.closing(status)
        self._output.append(self._item.to_json(status))
        self._item = None
        return events

    def _text_event(self, item: TextItem, text: str) -> bytes:
        """The same as `_add` and `_frame_of`, for the event that a stream is made of."""
        item.texts.append(text)
        number = self._n_events
        self._n_events += 1
        return item.delta_head + orjson.dumps(text) + b',"sequence_number":%d}\n\n' % number

    def _with_figures(self, events: list[Event]) -> bytes:
        if events and self.facts.body.timings_per_token:
            events[-1]["timings"] = self.sequence_text.timings.to_json()
        return b"".join(map(self._frame_of, events))

    def _frame_of(self, event: Event) -> bytes:
        event["sequence_number"] = self._n_events
        self._n_events += 1
        return named_sse(event)

    # -- parts ----------------------------------------------------------------------------------

    @property
    def _status(self) -> str:
        return "incomplete" if self.finish_reason == "length" else "completed"

    def _response(self, status: str, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        usage = None
        if status != "in_progress":
            usage = usage_object(self.sequence_text.timings, self._n_reasoning)
        return response_object(
            self.facts, self._request, self._id, status=status, output=output, usage=usage
        )


def new_id(kind: str) -> str:
    """An id of an output item."""
    return f"{kind}_{secrets.token_hex(16)}"
