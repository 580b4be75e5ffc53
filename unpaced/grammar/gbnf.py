"""GBNF, llama.cpp's grammar notation, to a tree.

Accepts and refuses what llama.cpp 0c1e57098 src/llama-grammar.cpp:432-725 does, left recursion
apart, which the matcher here can do. Sizes are bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from unpaced.grammar.gbnf_tree import (
    MAX_CODE_POINT,
    Chars,
    GbnfError,
    Group,
    Item,
    Reference,
    Repeat,
    Sequence,
    Token,
)

MAX_REPETITIONS: Final = 2000  # llama.cpp's MAX_REPETITION_THRESHOLD
MAX_BYTES: Final = 65536
MAX_NESTING: Final = 100
MAX_RULES: Final = 2000
MAX_STACKED: Final = 8
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"} | {
    "-": "-"
}
_HEX_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}


@dataclass(slots=True)
class _Parser:
    text: str
    position: int = 0
    # llama.cpp numbers rules and those it makes of groups and repetitions; its limit on
    # repetitions counts them.
    n_symbols: int = 0
    names: set[str] = field(default_factory=set)

    def peek(self, offset: int = 0) -> str:
        at = self.position + offset
        return self.text[at] if at < len(self.text) else ""

    def fail(self, message: str) -> GbnfError:
        line = self.text.count("\n", 0, self.position) + 1
        near = self.text[self.position : self.position + 20]
        return GbnfError(f"{message} at line {line}: {near!r}")

    def symbol(self, name: str) -> None:
        if name not in self.names:
            self.names.add(name)
            self.n_symbols += 1

    def space(self, newlines: bool) -> None:
        blank = " \t\r\n" if newlines else " \t"
        while (c := self.peek()) and (c in blank or c == "#"):
            if c == "#":
                while self.peek() not in ("", "\r", "\n"):
                    self.position += 1
            else:
                self.position += 1

    def take_while(self, wanted: Callable[[str], bool], what: str) -> str:
        begin = self.position
        while (c := self.peek()) and wanted(c):
            self.position += 1
        if begin == self.position:
            raise self.fail(f"expecting {what}")
        return self.text[begin : self.position]

    def name(self) -> str:
        return self.take_while(_is_word, "name")

    def integer(self) -> int:
        digits = self.take_while(_is_digit, "integer")
        if len(digits) > 18:
            raise self.fail("number too large")
        return int(digits)

    def expect(self, text: str) -> None:
        if not self.text.startswith(text, self.position):
            raise self.fail(f"expecting {text!r}")
        self.position += len(text)

    def char(self) -> int:
        c = self.peek()
        if not c:
            raise self.fail("unexpected end of input")
        self.position += 1
        if c != "\\":
            return ord(c)
        kind = self.peek()
        self.position += 1
        if kind in _ESCAPES:
            return ord(_ESCAPES[kind])
        size = _HEX_ESCAPES.get(kind, 0)
        digits = self.text[self.position : self.position + size]
        if not size:
            self.position -= 2
            raise self.fail("unknown escape")
        if len(digits) < size or not all(d in "0123456789abcdefABCDEF" for d in digits):
            raise self.fail(f"expecting {size} hex chars")
        self.position += size
        return int(digits, 16)

    def rules(self) -> dict[str, Group]:
        found: dict[str, Group] = {}
        self.space(True)
        while self.peek():
            name = self.name()
            self.space(False)
            self.symbol(name)
            self.expect("::=")
            self.space(True)
            found[name] = self.alternatives(0)
            if self.peek() == "\r":
                self.position += 1
                self.position += self.peek() == "\n"
            elif self.peek() == "\n":
                self.position += 1
            elif self.peek():
                raise self.fail("expecting newline or end")
            self.space(True)
            if len(found) > MAX_RULES:
                raise GbnfError(f"more than {MAX_RULES} rules")
        return found

    def alternatives(self, depth: int) -> Group:
        choices = [self.sequence(depth)]
        while self.peek() == "|":
            self.position += 1
            self.space(True)
            choices.append(self.sequence(depth))
        return Group(tuple(choices))

    def sequence(self, depth: int) -> Sequence:
        if depth > MAX_NESTING:
            raise GbnfError(f"parentheses are nested more than {MAX_NESTING} deep")
        items: list[Item] = []
        last: int | None = None  # where in `items` the unit begins that a repetition takes
        weight = 1  # llama.cpp's rules of that unit
        stacked = 0  # repetitions of it so far, as in a*?+
        while c := self.peek():
            if c in "*+?{":
                low, high = self.repetition(depth > 0)
                if last is None or last == len(items):
                    raise self.fail("expecting preceding item to */+/?/{")
                times = high or low or 1
                if weight * times > MAX_REPETITIONS:
                    raise self.fail("too many repetitions")
                weight *= times
                self.n_symbols += 1 if high is None else high - low
                items[last:] = [Repeat(tuple(items[last:]), low, high)]
                stacked += 1
                if stacked > MAX_STACKED:
                    raise self.fail("too many repetitions")
                continue
            before = self.n_symbols
            unit = self.unit(c, depth)
            if unit is None:
                break
            last, stacked = len(items), 0
            weight = max(1, self.n_symbols - before) if c == "(" else 1
            items.extend(unit)
            self.space(depth > 0)
        return tuple(items)

    def unit(self, c: str, depth: int) -> Sequence | None:
        if c == '"':
            return self.literal()
        if c == "[":
            return self.char_class()
        if c in "<!":
            return (self.token(),)
        if c == ".":
            self.position += 1
            return (Chars(((0, MAX_CODE_POINT),)),)
        if c == "(":
            self.position += 1
            self.space(True)
            self.n_symbols += 1
            group = self.alternatives(depth + 1)
            self.expect(")")
            return (group,)
        if _is_word(c):
            name = self.name()
            self.symbol(name)
            return (Reference(name),)
        return None

    def literal(self) -> Sequence:
        self.position += 1
        chars = []
        while self.peek() != '"':
            point = self.char()
            chars.append(Chars(((point, point),)))
        self.position += 1
        return tuple(chars)

    def char_class(self) -> Sequence:
        self.position += 1
        negated = self.peek() == "^"
        self.position += negated
        ranges = []
        while self.peek() != "]":
            low = high = self.char()
            if self.peek() == "-" and self.peek(1) != "]":
                self.position += 1
                high = self.char()
            ranges.append((low, high))
        self.position += 1
        # llama.cpp takes an empty class for nothing at all.
        return (Chars(tuple(ranges), negated),) if ranges else ()

    def token(self) -> Token:
        negated = self.peek() == "!"
        self.position += negated
        begin = self.position
        self.expect("<")
        if self.peek() == "[":
            self.position += 1
            token = self.integer()
            self.expect("]>")
            return Token(token, negated)
        end = self.text.find(">", self.position)
        if end < 0:
            raise self.fail("expecting '>'")
        self.position = end + 1
        return Token(self.text[begin : self.position], negated)

    def repetition(self, nested: bool) -> tuple[int, int | None]:
        c = self.peek()
        self.position += 1
        self.space(nested)
        if c != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
        low = self.integer()
        high: int | None = low
        self.space(nested)
        if self.peek() == ",":
            self.position += 1
            self.space(nested)
            high = self.integer() if _is_digit(self.peek()) else None
            self.space(nested)
        self.expect("}")
        self.space(nested)
        if low > MAX_REPETITIONS:
            raise self.fail(f"more than {MAX_REPETITIONS} repetitions")
        if high is not None and high < low:
            raise self.fail(f"{{{low},{high}}} asks for fewer at most than at least")
        if high is not None and high > MAX_REPETITIONS:
            high = None  # as llama.cpp
        return low, high


def _is_digit(c: str) -> bool:
    return "0" <= c <= "9"


def _is_word(c: str) -> bool:
    return "a" <= c <= "z" or "A" <= c <= "Z" or c == "-" or _is_digit(c)


def parse_gbnf(text: str) -> dict[str, Group]:
    """Rules by name; `root` is one of them, and every reference has its rule. Raises: GbnfError."""
    if len(text.encode()) > MAX_BYTES:
        raise GbnfError(f"the grammar is longer than {MAX_BYTES} bytes")
    if "\0" in text:
        raise GbnfError("the grammar holds a NUL character")
    rules = _Parser(text).rules()
    if not rules:
        raise GbnfError("there are no rules")
    for group in rules.values():
        _check_references(group, rules)
    if "root" not in rules:
        raise GbnfError("grammar does not contain a 'root' symbol")
    return rules


def _check_references(group: Group, rules: dict[str, Group]) -> None:
    for choice in group.choices:
        for item in choice:
            if isinstance(item, Reference) and item.name not in rules:
                raise GbnfError(f"Undefined rule identifier '{item.name}'")
            if isinstance(item, Group):
                _check_references(item, rules)
            elif isinstance(item, Repeat):
                _check_references(Group((item.item,)), rules)
