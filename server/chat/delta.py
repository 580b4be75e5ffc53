"""What one step of a chat answer adds to the message."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of tool call number `index`. `id` and `name` come once, with the first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """Text for exactly one of the three; never empty."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
