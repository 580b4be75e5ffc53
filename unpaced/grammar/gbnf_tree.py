"""What a GBNF grammar is made of."""

from typing import Final, NamedTuple

MAX_CODE_POINT: Final = 0x10FFFF


class GbnfError(ValueError):
    """The text is not GBNF, or too large."""


class Chars(NamedTuple):
    """One character out of ranges of code points, inclusive; `negated`: out of all others."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


class Reference(NamedTuple):
    """Another rule."""

    name: str


class Token(NamedTuple):
    """One token by its id, or by text that is exactly one token; `negated`: any other one."""

    token: int | str
    negated: bool = False


class Repeat(NamedTuple):
    """`item` from `low` to `high` times; None: without end."""

    item: "Sequence"
    low: int
    high: int | None


class Group(NamedTuple):
    """One of several sequences."""

    choices: tuple["Sequence", ...]


class Terminal(NamedTuple):
    """A part of the grammar as a regular expression, which never matches the empty text."""

    regex: str


Item = Chars | Reference | Token | Repeat | Group | Terminal
Sequence = tuple[Item, ...]
