"""Reads tool calls out of a model's text, each kind of syntax by a class of its own."""

import re
from abc import ABC, abstractmethod
from typing import Final, Protocol

import orjson

from unpaced.chat.answer.json_reader import JsonReader, NotJson
from unpaced.chat.answer.text_source import EndOfText, Reading, TextSource
from unpaced.chat.tools.offer import Tool
from unpaced.chat.tools.syntax import ToolSyntax

_NAME: Final = re.compile(r"[A-Za-z0-9_.\-/]+")
_COUNT: Final = re.compile(r"[0-9:]+")
_ARGUMENT_KEYS: Final = ("arguments", "parameters")


class CallSink(Protocol):
    """Where calls go."""

    def begin_call(self, name: str) -> None:
        """A call begins."""

    def add_arguments(self, text: str) -> None:
        """More of its arguments, as JSON text."""


class CallReader(ABC):
    """Reads one section of calls. Raises NotJson or EndOfText where the text is no such section."""

    def __init__(
        self, syntax: ToolSyntax, tools: tuple[Tool, ...], source: TextSource, sink: CallSink
    ) -> None:
        self._syntax = syntax
        self._tools = {tool.name: tool for tool in tools}
        self._source = source
        self._json = JsonReader(source)
        self._sink = sink
        self._n_begun = 0
        self.trigger = syntax.trigger.split()[0] if syntax.trigger else ""

    def read(self, max_calls: int) -> Reading[None]:
        """All calls that come next; at least one. `max_calls` 0: any number."""
        source, syntax = self._source, self._syntax
        if not (yield from source.match(syntax.section_start)):
            raise NotJson
        n_calls = 0
        while True:
            at = source.at
            if n_calls and not (yield from self._another()):
                source.at = at
                break
            if not (yield from source.match(syntax.call_start)):
                if n_calls:
                    source.at = at
                    break
                raise NotJson
            yield from source.skip_space()
            n_begun = self._n_begun
            try:
                yield from self._call()
            except (NotJson, EndOfText):
                if n_calls == 0 or self._n_begun > n_begun:
                    raise
                source.at = at
                break
            yield from source.match(syntax.call_end)
            n_calls += 1
            if n_calls == max_calls:
                break
        yield from source.match(syntax.section_end)

    def _another(self) -> Reading[bool]:
        """Read the separator; True if another call may follow."""
        yield from self._source.skip_space()
        if (yield from self._source.peek()) in (",", ";"):
            self._source.take(1)
            return True
        if self._syntax.call_start.strip():
            return True
        return (yield from self._source.peek()) == "{"

    @abstractmethod
    def _call(self) -> Reading[None]:
        """One call, without the marks around it."""

    def _begin(self, name: str) -> None:
        self._n_begun += 1
        self._sink.begin_call(name)

    def _known(self, name: str) -> str:
        if name not in self._tools:
            raise NotJson
        return name

    def _stream_object(self, name: str) -> Reading[None]:
        """A call's arguments: a JSON object, passed on as it comes."""
        if (yield from self._source.peek()) != "{":
            raise NotJson
        self._begin(name)
        yield from self._json.value(self._sink.add_arguments)


class JsonCallReader(CallReader):
    """`{"name": ..., "arguments": {...}}`, or an array of those."""

    def _call(self) -> Reading[None]:
        if (yield from self._source.peek()) != "[":
            yield from self._object()
            return
        self._source.take(1)
        yield from self._source.skip_space()
        while True:
            at, n_begun = self._source.at, self._n_begun
            try:
                yield from self._object()
            except (NotJson, EndOfText):
                if self._n_begun == n_begun:
                    self._source.at = at
                raise
            if (yield from self._json.expect(",]")) == "]":
                return
            yield from self._source.skip_space()

    def _object(self) -> Reading[None]:
        name, arguments, has_begun = yield from self._fields("", "", False)
        if not name:
            raise NotJson
        if not has_begun:
            self._begin(name)
            self._sink.add_arguments(arguments or "{}")

    def _fields(self, name: str, arguments: str, has_begun: bool) -> Reading[tuple[str, str, bool]]:
        source, syntax = self._source, self._syntax
        yield from self._json.expect("{")
        while True:
            yield from source.skip_space()
            key = yield from self._json.string()
            yield from self._json.expect(":")
            yield from source.skip_space()
            first = yield from source.peek()
            if key in (syntax.wrapper, "function") and first == "{":
                name, arguments, has_begun = yield from self._fields(name, arguments, has_begun)
            elif key in (syntax.name_key, "name", "function") and not name:
                name = self._known((yield from self._json.string()))
            elif key in (syntax.arguments_key, *_ARGUMENT_KEYS) and not (arguments or has_begun):
                if first == '"':
                    arguments = _as_object((yield from self._json.string()))
                elif name:
                    yield from self._stream_object(name)
                    has_begun = True
                else:
                    pieces: list[str] = []
                    yield from self._json.value(pieces.append)
                    arguments = _as_object("".join(pieces))
            elif name or key in ("type", "id", "index", "tool_call_id"):
                yield from self._json.value(lambda _: None)
            else:
                raise NotJson
            if (yield from self._json.expect(",}")) == "}":
                return name, arguments, has_begun


class NamedCallReader(CallReader):
    """A name, then its arguments as a JSON object."""

    def _call(self) -> Reading[None]:
        source, syntax = self._source, self._syntax
        name = self._known((yield from source.run_of(_NAME)))
        name_end = syntax.name_end
        if name_end.startswith(":0"):  # calls are numbered
            yield from source.run_of(_COUNT)
            name_end = name_end[2:]
        if syntax.id_end and (yield from source.match(name_end)):
            yield from source.until(syntax.id_end.strip())
        elif not (yield from source.match(syntax.id_end or name_end)):
            raise NotJson
        yield from source.skip_space()
        yield from self._stream_object(name)


class TaggedCallReader(CallReader):
    """A name, then each argument between marks; passed on argument by argument."""

    def _call(self) -> Reading[None]:
        source, syntax = self._source, self._syntax
        name = self._known((yield from source.run_of(_NAME)))
        if not (yield from source.match(syntax.name_end)):
            raise NotJson
        properties = self._tools[name].parameters.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        self._begin(name)
        self._sink.add_arguments("{")
        separator = ""
        at = source.at
        while (yield from source.match(syntax.key_start)):
            try:
                key, is_text = yield from self._key()
                value = yield from source.until(syntax.value_end.strip())
            except (NotJson, EndOfText):
                source.at = at
                raise
            text = _tagged_value(_one_line_less(value, syntax), properties.get(key), is_text)
            self._sink.add_arguments(f"{separator}{orjson.dumps(key).decode()}: {text}")
            separator = ", "
            at = source.at
        self._sink.add_arguments("}")

    def _key(self) -> Reading[tuple[str, bool | None]]:
        """A key, and whether its value is said to be text."""
        key_end = self._syntax.key_end
        said = 'string="true"'
        if said not in key_end:
            key = yield from self._source.until(key_end.split()[0])
            for part in key_end.split()[1:]:
                if not (yield from self._source.match(part)):
                    raise NotJson
            return key, None
        key = yield from self._source.until(key_end.partition(said)[0].rstrip())
        tail = yield from self._source.until(">")
        return key, '"true"' in tail


_READERS: Final[dict[str, type[JsonCallReader | NamedCallReader | TaggedCallReader]]] = {
    "json": JsonCallReader,
    "named": NamedCallReader,
    "tagged": TaggedCallReader,
}


def call_reader(
    syntax: ToolSyntax, tools: tuple[Tool, ...], source: TextSource, sink: CallSink
) -> CallReader:
    """The reader for a syntax."""
    return _READERS[syntax.kind](syntax, tools, source, sink)


def _as_object(text: str) -> str:
    """Arguments that came as a whole. Raises: NotJson."""
    try:
        value = orjson.loads(text.encode(errors="replace"))
    except orjson.JSONDecodeError:
        raise NotJson from None
    if not isinstance(value, dict):
        raise NotJson
    return text


def _one_line_less(value: str, syntax: ToolSyntax) -> str:
    """Without the line breaks that belong to the marks."""
    if syntax.quoted:
        value = value.removeprefix('"').removesuffix('"')
    if syntax.key_end.endswith("\n"):
        value = value.removeprefix("\n")
    return value.removesuffix("\n") if syntax.value_end.startswith("\n") else value


def _tagged_value(value: str, schema: object, is_text: bool | None) -> str:
    """JSON of a value: text where the schema says so, or where it is no JSON."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if is_text is None:
        is_text = kind == "string"
    if not is_text:
        try:
            orjson.loads(value.strip().encode(errors="replace"))
            return value.strip()
        except orjson.JSONDecodeError:
            pass
    return orjson.dumps(value).decode()
