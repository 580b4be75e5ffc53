"""A model's text, piece by piece, to an assistant message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from server.chat import harmony
from server.chat.delta import ChatDelta, ToolCallDelta
from server.chat.json_reader import NotJson
from server.chat.text_source import EndOfText, Reading, TextSource, n_held
from server.chat.tools.call_reader import CallReader, call_reader
from server.chat.tools.offer import Tool
from server.chat.tools.syntax import ToolSyntax
from server.settings.chat import ReasoningFormat


@dataclass(frozen=True, slots=True)
class AnswerSyntax:
    """What an answer may hold besides content.

    `reasoning`: the tags around the model's thoughts. `opens_reasoning`: the prompt ends within
    them. `tools` and `syntax`: the functions that may be called, and how; `max_calls` 0: no limit.
    `harmony`: the answer has gpt-oss's channels. `..._so_far`: the message's beginning, which the
    prompt holds; it comes with the first delta if `streams_so_far`.
    """

    reasoning: tuple[str, str] | None = None
    opens_reasoning: bool = False
    reasoning_format: ReasoningFormat = "deepseek"
    syntax: ToolSyntax | None = None
    tools: tuple[Tool, ...] = ()
    max_calls: int = 0
    harmony: bool = False
    content_so_far: str = ""
    reasoning_so_far: str = ""
    streams_so_far: bool = True

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that must stay visible although they are special tokens."""
        if self.harmony:
            return harmony.MARKS
        tags = self.reasoning or ()
        return tags if self.syntax is None else tags + self.syntax.marks


PLAIN: Final = AnswerSyntax()


class ChatParser:
    """One answer. Feed it final text in any pieces: the deltas joined are always `message`, but for
    a beginning that the syntax keeps out of streams.

    Text that only looks like a tool call ends up in the content, none of it lost.
    """

    __slots__ = (
        "_call_id",
        "_calls",
        "_content",
        "_deltas",
        "_is_plain",
        "_reader",
        "_reading",
        "_reasoning",
        "_source",
        "_syntax",
    )

    def __init__(self, syntax: AnswerSyntax = PLAIN, call_id: Callable[[], str] = str) -> None:
        self._syntax = syntax
        self._call_id = call_id
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._deltas: list[ChatDelta] = []
        self._source = TextSource()
        self._reader: CallReader | None = None
        if syntax.syntax is not None and not syntax.harmony:
            self._reader = call_reader(syntax.syntax, syntax.tools, self._source, self)
        self._reading: Reading[None] = self._read()
        self._is_plain = False
        self._add_reasoning(syntax.reasoning_so_far, False)
        self.add_content(syntax.content_so_far)
        if not syntax.streams_so_far:
            self._deltas = []
        self._advance()

    @property
    def has_tool_calls(self) -> bool:
        """True once a tool call has begun."""
        return bool(self._calls)

    def push(self, text: str) -> list[ChatDelta]:
        """What one more piece of text adds; nothing where it must be held back."""
        if not text:
            return []
        if self._is_plain:
            if self._deltas:  # what the prompt holds
                self.add_content(text)
                return self._take_deltas()
            self._content.append(text)
            return [ChatDelta(content=text)]
        self._source.push(text)
        self._advance()
        return self._take_deltas()

    def finish(self) -> list[ChatDelta]:
        """What was held back, now that no text follows. Call once."""
        self._source.closed = True
        self._advance()
        return self._take_deltas()

    def message(self) -> dict[str, Any]:
        """OpenAI's assistant message so far, its keys in llama-server's order."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {"name": call["name"], "arguments": "".join(call["arguments"])},
                    "id": call["id"],
                }
                for call in self._calls
            ]
        return message

    # -- what readers report ----------------------------------------------------------------------

    def begin_call(self, name: str) -> None:
        """A tool call begins; from here on it is not taken back."""
        call_id = self._call_id()
        self._calls.append({"name": name, "arguments": [], "id": call_id})
        delta = ToolCallDelta(len(self._calls) - 1, id=call_id, name=name)
        self._deltas.append(ChatDelta(tool_calls=(delta,)))

    def add_arguments(self, text: str) -> None:
        """More of the last call's arguments."""
        if text:
            self._calls[-1]["arguments"].append(text)
            delta = ToolCallDelta(len(self._calls) - 1, arguments=text)
            self._deltas.append(ChatDelta(tool_calls=(delta,)))

    def add_content(self, text: str) -> None:
        """More of the content."""
        if text:
            self._content.append(text)
            self._deltas.append(ChatDelta(content=text))

    def add_thought(self, text: str) -> None:
        """More of the thoughts."""
        self._add_reasoning(text, self._syntax.reasoning_format == "deepseek-legacy")

    # -- reading ----------------------------------------------------------------------------------

    def _advance(self) -> None:
        next(self._reading, None)

    def _take_deltas(self) -> list[ChatDelta]:
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) < 2 else _merged(deltas)

    def _read(self) -> Reading[None]:
        if self._syntax.harmony and self._syntax.reasoning_format != "none":
            names = frozenset(tool.name for tool in self._syntax.tools)
            yield from harmony.HarmonyReader(self._source, self, names).read(
                in_thought=self._syntax.opens_reasoning
            )
            return
        yield from self._read_reasoning()
        if self._reader is None:
            self.add_content(self._source.take(len(self._source.rest)))
            self._is_plain = True
            return
        if self._reader.trigger:
            yield from self._read_mixed(self._reader)
        else:
            yield from self._read_bare(self._reader)
        while True:
            self.add_content(self._source.take(len(self._source.rest)))
            self._source.forget()
            if not (yield from self._source.wait()):
                return

    def _read_reasoning(self) -> Reading[None]:
        syntax, source = self._syntax, self._source
        if syntax.reasoning is None:
            return
        start, end = syntax.reasoning
        if syntax.reasoning_format == "none":
            return
        if not syntax.opens_reasoning:
            at = source.at
            if not (yield from source.match(start)):
                source.at = at
                return
        keeps_tags = syntax.reasoning_format == "deepseek-legacy"
        if keeps_tags:
            self.add_content(start)
        yield from source.skip_space()
        ended = yield from self._copy_until(end, lambda text: self._add_reasoning(text, keeps_tags))
        if not ended:
            return
        source.take(len(end))
        if keeps_tags:
            self.add_content(end)
        else:
            yield from source.skip_space()
        source.forget()

    def _copy_until(self, mark: str, out: Callable[[str], None]) -> Reading[bool]:
        """Pass text on up to `mark`, which stays unread, without the whitespace before it.

        False if it never comes; then all text was passed on.
        """
        source = self._source
        while True:
            rest = source.rest
            found = rest.find(mark)
            if found >= 0:
                out(rest[:found].rstrip())
                source.take(found)
                return True
            n_ready = len(rest[: len(rest) - n_held(rest, mark)].rstrip())
            out(source.take(n_ready))
            source.forget()
            if not (yield from source.wait()):
                out(source.take(len(source.rest)))
                return False

    def _read_mixed(self, reader: CallReader) -> Reading[None]:
        """Content, and calls that begin with a mark."""
        source, mark = self._source, reader.trigger
        while (yield from self._copy_until(mark, self.add_content)):
            # `_copy_until` dropped the whitespace before the mark, which only a call may cost.
            space = self._dropped_space()
            at = source.at
            n_calls = len(self._calls)
            try:
                yield from reader.read(self._syntax.max_calls)
            except (NotJson, EndOfText):
                if len(self._calls) == n_calls:
                    source.at = at
                    self.add_content(space + source.take(len(mark)))
                source.forget()
                continue
            source.forget()
            if self._syntax.max_calls and len(self._calls) >= self._syntax.max_calls:
                return
            yield from source.skip_space()
            source.forget()

    def _read_bare(self, reader: CallReader) -> Reading[None]:
        """An answer that is a call as a whole, or content as a whole."""
        source = self._source
        at = source.at
        try:
            yield from reader.read(self._syntax.max_calls)
        except (NotJson, EndOfText):
            if not self._calls:
                source.at = at
            return
        yield from source.skip_space()

    def _dropped_space(self) -> str:
        text = self._source.since(0)
        return text[len(text.rstrip()) :]

    def _add_reasoning(self, text: str, keeps_tags: bool) -> None:
        if text:
            self._reasoning.append(text)
            self._deltas.append(ChatDelta(reasoning=text))
            if keeps_tags:
                self.add_content(text)


def _merged(deltas: list[ChatDelta]) -> list[ChatDelta]:
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
