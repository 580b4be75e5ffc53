"""One item of a streamed response's output, and the events it is made known by."""

from abc import ABC, abstractmethod
from typing import Any

import orjson

from unpaced.writers.response_object import (
    call_item,
    message_item,
    reasoning_item,
    reasoning_part,
    text_part,
)

Event = dict[str, Any]


class OutputItem(ABC):
    """Call `opening`, `add` for each piece, `closing`. `index` is its place in the output."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.texts: list[str] = []

    @abstractmethod
    def to_json(self, status: str) -> dict[str, Any]:
        """The item as it is now."""

    @abstractmethod
    def add(self, text: str) -> Event:
        """One more piece."""

    def opening(self) -> list[Event]:
        """The events before the first piece."""
        return [self._item_event("response.output_item.added", "in_progress")]

    def closing(self, status: str) -> list[Event]:
        """The events after the last piece."""
        return [self._item_event("response.output_item.done", status)]

    @property
    def text(self) -> str:
        """All pieces so far."""
        return "".join(self.texts)

    def _item_event(self, kind: str, status: str) -> Event:
        return {"type": kind, "output_index": self.index, "item": self.to_json(status)}


class _PartItem(OutputItem):
    """An item that holds one content part."""

    word = ""  # in the names of its events

    @abstractmethod
    def part(self, text: str) -> dict[str, Any]:
        """The content part."""

    def add(self, text: str) -> Event:
        """One more piece."""
        self.texts.append(text)
        return {"type": f"response.{self.word}.delta", "delta": text} | self._text_place()

    def opening(self) -> list[Event]:
        """The item, then its part."""
        return [*super().opening(), self._part_event("response.content_part.added", "")]

    def closing(self, status: str) -> list[Event]:
        """The text, the part, the item."""
        text = self.text
        done = {"type": f"response.{self.word}.done", "text": text} | self._text_place()
        return [
            done,
            self._part_event("response.content_part.done", text),
            *super().closing(status),
        ]

    def _part_event(self, kind: str, text: str) -> Event:
        return {"type": kind, "part": self.part(text)} | self._place()

    def _text_place(self) -> dict[str, Any]:
        """Where the text is, with what events of this kind have besides."""
        return self._place()

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}


class ReasoningItem(_PartItem):
    """The model's reasoning."""

    word = "reasoning_text"

    def to_json(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        return reasoning_item(self.id, self.text if self.texts else None, status)

    def part(self, text: str) -> dict[str, Any]:
        """The content part."""
        return reasoning_part(text)


class TextItem(_PartItem):
    """The answer's text. `delta_head` is what a piece's event begins with, up to the piece."""

    word = "output_text"

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        head = {"type": "response.output_text.delta"} | self._text_place()
        self.delta_head = (
            b"event: response.output_text.delta\ndata: " + orjson.dumps(head)[:-1] + b',"delta":'
        )

    def to_json(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        return message_item(self.id, self.text if self.texts else None, status)

    def part(self, text: str) -> dict[str, Any]:
        """The content part."""
        return text_part(text)

    def _text_place(self) -> dict[str, Any]:
        return self._place() | {"logprobs": []}


class CallItem(OutputItem):
    """A function call; `number` counts the calls of the answer."""

    def __init__(self, call_id: str, index: int, *, name: str, number: int) -> None:
        super().__init__(f"fc_{call_id}", index)
        self._call_id = call_id
        self._name = name
        self.number = number

    def to_json(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        return call_item(self._call_id, self._name, self.text, status)

    def add(self, text: str) -> Event:
        """More of the arguments."""
        self.texts.append(text)
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "item_id": self.id, "output_index": self.index, "delta": text}

    def closing(self, status: str) -> list[Event]:
        """The arguments, then the item."""
        done = {
            "type": "response.function_call_arguments.done",
            "item_id": self.id,
            "output_index": self.index,
            "name": self._name,
            "arguments": self.text,
        }
        return [done, *super().closing(status)]
