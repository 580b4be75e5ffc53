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


def merged(deltas: list[ChatDelta]) -> list[ChatDelta]:
    """Pieces of the same text as one delta; a call's name with its first arguments."""
    merged = [deltas[0]]
    for delta in deltas[1:]:
        last = merged[-1]
        if delta.content and last.content:
            merged[-1] = ChatDelta(content=last.content + delta.content)
        elif delta.reasoning and last.reasoning:
            merged[-1] = ChatDelta(reasoning=last.reasoning + delta.reasoning)
        elif delta.tool_calls and last.tool_calls and not delta.tool_calls[0].name:
            one, more = last.tool_calls[0], delta.tool_calls[0]
            joined = ToolCallDelta(one.index, one.id, one.name, one.arguments + more.arguments)
            merged[-1] = ChatDelta(tool_calls=(joined,))
        else:
            merged.append(delta)
    return merged
