"""Reads a JSON value as it comes, and passes on what is certain to be valid."""

import re
from collections.abc import Callable
from typing import Final

import orjson

from unpaced.chat.answer.text_source import EndOfText, Reading, TextSource

MAX_DEPTH: Final = 64
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_WORD: Final = re.compile(r"[-+.0-9A-Za-z]+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class NotJson(Exception):
    """The text is no JSON."""


class JsonReader:
    """Reads values from a source and hands their text to `out`, whitespace between tokens kept.

    Where it fails, what was not handed to `out` is unread again.
    Line breaks and other control characters within strings, which models write though JSON forbids
    it, are passed on escaped.
    """

    def __init__(self, source: TextSource) -> None:
        self._source = source

    def value(self, out: Callable[[str], None], depth: int = 0) -> Reading[None]:
        """Any value. Raises: NotJson, EndOfText."""
        first = yield from self._next()
        if first == "{":
            yield from self._container(out, "}", depth)
        elif first == "[":
            yield from self._container(out, "]", depth)
        elif first == '"':
            yield from self._string(out)
        else:
            at = self._source.at
            word = yield from self._source.run_of(_WORD)
            if word not in ("true", "false", "null") and not _NUMBER.fullmatch(word):
                self._source.at = at
                raise NotJson
            out(word)

    def string(self) -> Reading[str]:
        """A string, decoded. Raises: NotJson, EndOfText."""
        pieces: list[str] = []
        if (yield from self._next()) != '"':
            raise NotJson
        yield from self._string(pieces.append)
        decoded: str = orjson.loads("".join(pieces).encode(errors="replace"))
        return decoded

    def expect(self, characters: str) -> Reading[str]:
        """One of these, after whitespace. Raises: NotJson, EndOfText."""
        yield from self._source.skip_space()
        if (yield from self._next()) not in characters:
            raise NotJson
        return self._source.take(1)

    def _next(self) -> Reading[str]:
        character = yield from self._source.peek()
        if not character:
            raise EndOfText
        return character

    def _space(self, out: Callable[[str], None]) -> Reading[None]:
        at = self._source.at
        yield from self._source.skip_space()
        if self._source.at > at:
            out(self._source.since(at))

    def _container(self, out: Callable[[str], None], end: str, depth: int) -> Reading[None]:
        if depth >= MAX_DEPTH:
            raise NotJson
        out(self._source.take(1))
        yield from self._space(out)
        if (yield from self._next()) == end:
            out(self._source.take(1))
            return
        while True:
            if end == "}":
                if (yield from self._next()) != '"':
                    raise NotJson
                yield from self._string(out)
                yield from self._space(out)
                out((yield from self.expect(":")))
                yield from self._space(out)
            yield from self.value(out, depth + 1)
            yield from self._space(out)
            separator = yield from self.expect("," + end)
            out(separator)
            if separator == end:
                return
            yield from self._space(out)

    def _string(self, out: Callable[[str], None]) -> Reading[None]:
        source = self._source
        out(source.take(1))
        while True:
            character = yield from self._next()
            if character == '"':
                out(source.take(1))
                return
            if character == "\\":
                out((yield from self._escape()))
            elif character < " ":
                source.take(1)
                out(orjson.dumps(character).decode()[1:-1])
            else:
                found = _PLAIN.match(source.rest)
                assert found is not None
                out(source.take(found.end()))

    def _escape(self) -> Reading[str]:
        source = self._source
        at = source.at
        try:
            source.take(1)
            kind = yield from self._next()
            source.take(1)
            if kind == "u":
                for _ in range(4):
                    if (yield from self._next()) not in _HEX:
                        raise NotJson
                    source.take(1)
            elif kind not in _ESCAPES:
                raise NotJson
        except (NotJson, EndOfText):
            source.at = at
            raise
        return source.since(at)
