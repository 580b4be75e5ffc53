"""GBNF's rules as parts that can become terminals, or be opened.

A part is regular if it holds no token and no recursive rule, and is small. Regular parts that
stand side by side are one terminal, until one of them is opened: then its own parts stand there,
each on its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from unpaced.grammar.characters import Ranges, ranges_of, regex_of
from unpaced.grammar.gbnf_tree import (
    Chars,
    Group,
    Item,
    Reference,
    Repeat,
    Sequence,
    Terminal,
    Token,
)

MAX_CHARS: Final = 5000  # of a terminal, repetitions written out: about its automaton's states
MAX_HEIGHT: Final = 75  # of a terminal: choices, repetitions and rules in each other
MAX_PARTS: Final = 20000
MAX_EMPTY: Final = 8  # parts of a terminal that all may be empty; its size grows as their square


class TooLarge(Exception):
    """The grammar is not worth more work: every character is a terminal then."""


@dataclass(eq=False, slots=True)
class Part:
    """An item of the grammar. `inner`: its choices, what it repeats, or the rule it stands for."""

    item: Item
    inner: list["Series"]
    ranges: Ranges = ()
    n_chars: int = 0
    height: int = 0
    is_regular: bool = False
    is_nullable: bool = False
    is_open: bool = False

    @property
    def is_whole(self) -> bool:
        return self.is_regular and not self.is_open


@dataclass(eq=False, slots=True)
class Series:
    """Parts one after the other. A terminal ends at each of `cuts` (parts before it)."""

    parts: list[Part]
    cuts: set[int] = field(default_factory=set)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Its terminals [first, end), and parts that are no terminals."""
        first = 0
        while first < len(self.parts):
            end, n_chars, may_be_empty = first, 0, True
            while end < len(self.parts) and self.parts[end].is_whole:
                part = self.parts[end]
                n_chars += part.n_chars
                may_be_empty = may_be_empty and part.is_nullable
                is_too_long = n_chars > MAX_CHARS or (may_be_empty and end - first >= MAX_EMPTY)
                if end > first and (is_too_long or end in self.cuts):
                    break
                end += 1
            end = max(end, first + 1)
            yield first, end
            first = end


class Parts:
    """The parts of a grammar's rules."""

    def __init__(self, rules: Mapping[str, Group]) -> None:
        self._rules = rules
        self._sizes = _regular_rules(rules)
        self._n_parts = 0
        self.classes: set[Ranges] = set()
        self._series: dict[str, Series] = {}

    def rule(self, name: str) -> Series:
        """The rule `name`, the one that references outside of terminals stand for."""
        if name not in self._series:
            self._series[name] = self._make_series((self._rules[name],))
        return self._series[name]

    def _make_series(self, sequence: Sequence) -> Series:
        # Loops, here and below, where a comprehension would be a second frame a level.
        series = Series([])
        for item in sequence:
            series.parts.append(self._make(item))
        return series

    def _make(self, item: Item) -> Part:
        self._n_parts += 1
        if self._n_parts > MAX_PARTS:
            raise TooLarge
        part = Part(item, [])
        if isinstance(item, Chars):
            part.ranges, part.n_chars, part.is_regular = ranges_of(item), 1, True
            self.classes.add(part.ranges)
            return part
        if isinstance(item, Reference):
            if item.name not in self._sizes:
                return part
            part.inner = [self._make_series((self._rules[item.name],))]
        elif isinstance(item, Group):
            for choice in item.choices:
                part.inner.append(self._make_series(choice))
        elif isinstance(item, Repeat):
            part.inner = [self._make_series(item.item)]
        else:
            return part
        _measure(part)
        return part


def _measure(part: Part) -> None:
    children = [child for series in part.inner for child in series.parts]
    part.n_chars = sum(child.n_chars for child in children)
    part.height = _level(part.item) + max((child.height for child in children), default=0)
    part.is_nullable = any(all(child.is_nullable for child in s.parts) for s in part.inner)
    if isinstance(part.item, Repeat):
        part.n_chars *= _times(part.item)
        part.is_nullable = part.is_nullable or part.item.low == 0
    part.is_regular = (
        all(child.is_regular for child in children)
        and part.n_chars <= MAX_CHARS
        and part.height <= MAX_HEIGHT
    )


def _level(item: Item) -> int:
    return 0 if isinstance(item, Group) and len(item.choices) == 1 else 1


def _times(repeat: Repeat) -> int:
    return max(repeat.low, 1) if repeat.high is None else repeat.high


def _regular_rules(rules: Mapping[str, Group]) -> dict[str, tuple[int, int]]:
    """Characters and height of the rules that are not recursive, hold no token, and are small."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    missing: dict[str, set[str]] = {}
    for name, group in rules.items():
        missing[name] = set(_references((group,)))
        for used in missing[name]:
            users[used].add(name)
    sizes: dict[str, tuple[int, int]] = {}
    ready = [name for name, names in missing.items() if not names]
    while ready:
        name = ready.pop()
        size = _size((rules[name],), sizes)
        if size is None:
            continue
        sizes[name] = size
        for user in users[name]:
            missing[user].discard(name)
            if not missing[user]:
                ready.append(user)
    return sizes


def _references(sequence: Sequence) -> Iterator[str]:
    for item in sequence:
        if isinstance(item, Reference):
            yield item.name
        elif isinstance(item, Repeat):
            yield from _references(item.item)
        elif isinstance(item, Group):
            for choice in item.choices:
                yield from _references(choice)


def _size(sequence: Sequence, rules: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Characters and height, of what is regular."""
    n_chars = height = 0
    for item in sequence:
        if isinstance(item, Token):
            return None
        if isinstance(item, Reference):
            inner = [rules[item.name]]
        elif isinstance(item, Repeat | Group):
            sequences = [item.item] if isinstance(item, Repeat) else list(item.choices)
            inner = []
            for each in sequences:
                size = _size(each, rules)
                if size is None:
                    return None
                inner.append(size)
            if isinstance(item, Repeat):
                inner = [(inner[0][0] * _times(item), inner[0][1])]
        else:
            n_chars += 1
            continue
        n_chars += sum(size[0] for size in inner)
        height = max(height, _level(item) + max((size[1] for size in inner), default=0))
        if n_chars > MAX_CHARS or height > MAX_HEIGHT:
            return None
    return n_chars, height


def regex(parts: list[Part]) -> str:
    """The regular expression of regular parts, one after the other."""
    return "".join(_regex(part) for part in _plain(parts))


def _plain(parts: list[Part]) -> list[Part]:
    """The parts without groups and references around a single series."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part.item, Group | Reference) and len(part.inner) == 1:
            found += _plain(part.inner[0].parts)
        else:
            found.append(part)
    return found


def _regex(part: Part) -> str:
    if isinstance(part.item, Chars):
        return regex_of(part.ranges)
    if isinstance(part.item, Repeat):
        return _one(part.inner[0].parts) + _bounds(part.item.low, part.item.high)
    return f"(?:{'|'.join(regex(series.parts) for series in part.inner)})"


def _one(parts: list[Part]) -> str:
    """What `regex` makes, for a repetition to follow."""
    plain = _plain(parts)
    if len(plain) == 1 and isinstance(plain[0].item, Chars):
        return _regex(plain[0])
    return f"(?:{regex(plain)})"


def _bounds(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}.get((low, high))
    return f"{{{low},{'' if high is None else high}}}" if short is None else short


def regex_not_empty(parts: list[Part]) -> str:
    """What `regex` makes, without the empty text. `parts` hold a character at least."""
    if not all(part.is_nullable for part in parts):
        return regex(parts)
    choices = [
        _not_empty(part) + regex(parts[i + 1 :]) for i, part in enumerate(parts) if part.n_chars
    ]
    return f"(?:{'|'.join(choices)})"


def _not_empty(part: Part) -> str:
    if not part.is_nullable:
        return _regex(part)
    inner = "|".join(
        regex_not_empty(series.parts)
        for series in part.inner
        if any(child.n_chars for child in series.parts)
    )
    if not isinstance(part.item, Repeat):
        return f"(?:{inner})"
    high = part.item.high
    if not all(child.is_nullable for child in part.inner[0].parts):
        return f"(?:{inner}){_bounds(1, high)}"
    rest = _one(part.inner[0].parts) + _bounds(0, None if high is None else high - 1)
    return f"(?:{inner})" + ("" if high == 1 else rest)


def written(series: Series, names: set[str]) -> Sequence:
    """The series with its terminals. Adds to `names` the rules that it refers to."""
    items: list[Item] = []
    for first, end in series.pieces():
        parts = series.parts[first:end]
        if not parts[0].is_whole:
            items.append(_opened(parts[0], names))
        elif any(part.n_chars for part in parts):
            terminal = Terminal(regex_not_empty(parts))
            is_nullable = all(part.is_nullable for part in parts)
            items.append(Repeat((terminal,), 0, 1) if is_nullable else terminal)
    return tuple(items)


def _opened(part: Part, names: set[str]) -> Item:
    if isinstance(part.item, Reference):
        names.add(part.item.name)
        return part.item
    if isinstance(part.item, Group):
        choices = []
        for series in part.inner:
            choices.append(written(series, names))
        return Group(tuple(choices))
    if isinstance(part.item, Repeat):
        return Repeat(written(part.inner[0], names), part.item.low, part.item.high)
    return part.item
