"""A model's text, piece by piece, to an assistant message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from unpaced.chat.answer import harmony
from unpaced.chat.answer.blank_text import WithoutBlank
from unpaced.chat.answer.call_reader import CallReader, call_reader
from unpaced.chat.answer.delta import ChatDelta, ToolCallDelta, merged
from unpaced.chat.answer.json_reader import NotJson
from unpaced.chat.answer.text_source import EndOfText, Reading, TextSource, n_held
from unpaced.chat.tools.offer import Tool
from unpaced.chat.tools.syntax import ToolSyntax
from unpaced.values.reasoning_format import ReasoningFormat


@dataclass(frozen=True, slots=True)
class AnswerSyntax:
    """What an answer may hold besides content.

    `reasoning`: the tags around the model's reasoning. `opens_reasoning`: the prompt ends within
    it; `ends_reasoning`: the prompt has ended it, and what follows is content. `spacing`: the white
    space that belongs to the tags, after the first and after the second; None: all around them.
    `tools` and `syntax`: the functions that may be called, and how; `max_calls` 0: no limit.
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
    ends_reasoning: bool = False
    spacing: tuple[str, str] | None = None
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

    Text that only looks like a tool call ends up in the content, and nothing of it is lost.
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
        """Whether a tool call has begun."""
        return bool(self._calls)

    @property
    def passes_text(self) -> bool:
        """Whether `push` makes content of all that follows, piece by piece."""
        return self._is_plain and not self._deltas

    def push(self, text: str) -> list[ChatDelta]:
        """What one more piece of text adds; nothing where it must be held back."""
        if not text:
            return []
        if self._is_plain:
            self.add_content(text)
        else:
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

    def add_reasoning(self, text: str) -> None:
        """More of the reasoning."""
        self._add_reasoning(text, self._syntax.reasoning_format == "deepseek-legacy")

    # -- reading ----------------------------------------------------------------------------------

    def _advance(self) -> None:
        next(self._reading, None)

    def _take_deltas(self) -> list[ChatDelta]:
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) < 2 else merged(deltas)

    def _read(self) -> Reading[None]:
        if self._syntax.harmony and self._syntax.reasoning_format != "none":
            names = frozenset(tool.name for tool in self._syntax.tools)
            yield from harmony.HarmonyReader(self._source, self, names).read(
                in_reasoning=self._syntax.opens_reasoning
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
        if syntax.reasoning_format == "none" or syntax.ends_reasoning:
            return
        if not syntax.opens_reasoning:
            if syntax.spacing is not None:  # no text of a model that may think begins with it
                yield from source.skip_space()
                source.forget()
            at = source.at
            if not (yield from source.match(start)):
                source.at = at
                return
        keeps_tags = syntax.reasoning_format == "deepseek-legacy"
        if keeps_tags:
            self.add_content(start)
        out = WithoutBlank(lambda text: self._add_reasoning(text, keeps_tags))
        yield from self._skip_spacing(0)
        ended = yield from self._copy_until(end, out, strips=syntax.spacing is None)
        if not ended:
            return
        source.take(len(end))
        if keeps_tags:
            self.add_content(end)
        else:
            yield from self._skip_spacing(1)
        source.forget()

    def _skip_spacing(self, after: int) -> Reading[None]:
        """The white space that belongs to the tag before it."""
        source, spacing = self._source, self._syntax.spacing
        if spacing is None:
            yield from source.skip_space()
            return
        for character in spacing[after]:
            if (yield from source.peek()) == character:
                source.take(1)

    def _copy_until(
        self, mark: str, out: Callable[[str], None], *, strips: bool = True
    ) -> Reading[bool]:
        """Pass text on up to `mark`, which stays unread; `strips`: without the space before it.

        False if it never comes; then all text was passed on.
        """
        source = self._source
        while True:
            rest = source.rest
            found = rest.find(mark)
            if found >= 0:
                out(rest[:found].rstrip() if strips else rest[:found])
                source.take(found)
                return True
            ready = rest[: len(rest) - n_held(rest, mark)]
            out(source.take(len(ready.rstrip() if strips else ready)))
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
