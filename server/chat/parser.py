"""A model's text, piece by piece, to an assistant message."""

from typing import Any

from server.chat.delta import ChatDelta


class ChatParser:
    """One answer. Feed it final text in any pieces; the deltas joined are always `message`."""

    __slots__ = ("_content", "_reasoning", "_tool_calls")

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: list[dict[str, Any]] = []

    @property
    def has_tool_calls(self) -> bool:
        """True once a tool call has begun."""
        return bool(self._tool_calls)

    def push(self, text: str) -> list[ChatDelta]:
        """What one more piece of text adds; nothing where it must be held back."""
        if not text:
            return []
        self._content.append(text)
        return [ChatDelta(content=text)]

    def finish(self) -> list[ChatDelta]:
        """What was held back, now that no text follows. Call once."""
        return []

    def message(self) -> dict[str, Any]:
        """OpenAI's assistant message so far, its keys in llama-server's order."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._tool_calls:
            message["tool_calls"] = self._tool_calls
        return message
