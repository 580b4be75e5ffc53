"""Harmony, gpt-oss's answers: messages with headers, each on a channel.

`<|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>text`;
calls: `<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}`.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

import re
from typing import Final, Protocol

from unpaced.chat.answer.json_reader import JsonReader, NotJson
from unpaced.chat.answer.text_source import EndOfText, Reading, TextSource, n_held
from unpaced.chat.tools.syntax import ToolSyntax

MARKS: Final = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>")
CALL: Final = ToolSyntax(
    kind="named",
    call_start="<|channel|>commentary to=functions.",
    name_end=" <|constrain|>json<|message|>",
    call_end="<|call|>",
)
_RECIPIENT: Final = re.compile(r"to=functions\.([A-Za-z0-9_.\-]+)")
_ENDS: Final = ("<|end|>", "<|start|>")


class HarmonySink(Protocol):
    """Where the parts of an answer go."""

    def add_content(self, text: str) -> None:
        """More of the content."""

    def add_reasoning(self, text: str) -> None:
        """More of the reasoning."""

    def begin_call(self, name: str) -> None:
        """A call begins."""

    def add_arguments(self, text: str) -> None:
        """More of its arguments, as JSON text."""


def is_harmony(template: str) -> bool:
    """Whether a template is of this form."""
    return all(mark in template for mark in ("<|start|>", "<|channel|>", "<|message|>"))


class HarmonyReader:
    """Reads one answer. Text without a header is content."""

    def __init__(self, source: TextSource, sink: HarmonySink, tools: frozenset[str]) -> None:
        self._source = source
        self._sink = sink
        self._tools = tools

    def read(self, *, in_reasoning: bool) -> Reading[None]:
        """Everything, to the end of the text. `in_reasoning`: it begins within reasoning."""
        if in_reasoning:
            yield from self._body(is_reasoning=True)
        while (yield from self._source.peek()):
            at = self._source.at
            if not (yield from self._begins_with_header()):
                yield from self._body(is_reasoning=False)
                continue
            try:
                header = yield from self._source.until("<|message|>")
            except EndOfText:
                self._source.at = at
                self._sink.add_content(self._source.take(len(self._source.rest)))
                return
            called = _RECIPIENT.search(header)
            if called is not None and called[1] in self._tools:
                yield from self._call(called[1])
            else:
                yield from self._body(is_reasoning="<|channel|>analysis" in header)

    def _begins_with_header(self) -> Reading[bool]:
        for mark in ("<|start|>", "<|channel|>"):
            at = self._source.at
            found = yield from self._source.match(mark)
            self._source.at = at
            if found:
                return True
        return False

    def _call(self, name: str) -> Reading[None]:
        self._sink.begin_call(name)
        try:
            yield from self._source.skip_space()
            yield from JsonReader(self._source).value(self._sink.add_arguments)
        except (NotJson, EndOfText):
            pass
        yield from self._source.skip_space()
        yield from self._source.match("<|end|>")
        self._source.forget()

    def _body(self, *, is_reasoning: bool) -> Reading[None]:
        """A message's text up to its end mark, or the next message."""
        source = self._source
        out = self._sink.add_reasoning if is_reasoning else self._sink.add_content
        while True:
            rest = source.rest
            places = [at for at in (rest.find(mark) for mark in _ENDS) if at >= 0]
            if places:
                out(source.take(min(places)))
                yield from source.match("<|end|>")
                source.forget()
                return
            out(source.take(len(rest) - max(n_held(rest, mark) for mark in _ENDS)))
            source.forget()
            if not (yield from source.wait()):
                out(source.take(len(source.rest)))
                return
