"""GBNF's tree to the parts from which the engine tells where in the grammar a text is."""

from collections.abc import Mapping
from typing import Final

from engine_ext import GrammarPart
from unpaced.grammar.characters import ranges_of
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

MAX_PARTS: Final = 20000


def parts_of(rules: Mapping[str, Group]) -> list[GrammarPart]:
    """The parts, `root` first; none if the grammar names tokens, which are not text, or is large.

    Raises: GbnfError.
    """
    try:
        return _Parts(rules).made()
    except _NoParts:
        return []


class _NoParts(Exception):
    pass


class _Parts:
    """Equal parts are one, so that equal texts behind them lead to the same place."""

    def __init__(self, rules: Mapping[str, Group]) -> None:
        self._rules = rules
        self._parts: list[GrammarPart] = []
        self._known: dict[GrammarPart, int] = {}
        self._numbers: dict[str, int] = {}
        self._waiting: list[str] = []

    def made(self) -> list[GrammarPart]:
        self._rule("root")
        while self._waiting:
            name = self._waiting.pop()
            choices = self._choices(self._rules[name])
            self._parts[self._numbers[name]] = GrammarPart(choices=choices)
        return self._parts

    def _rule(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = self._add(GrammarPart())
            self._waiting.append(name)
        return self._numbers[name]

    def _add(self, part: GrammarPart) -> int:
        if len(self._parts) == MAX_PARTS:
            raise _NoParts
        self._parts.append(part)
        return len(self._parts) - 1

    def _choices(self, group: Group) -> tuple[tuple[int, ...], ...]:
        return tuple(self._sequence(choice) for choice in group.choices)

    def _sequence(self, sequence: Sequence) -> tuple[int, ...]:
        return tuple(self._item(item) for item in sequence)

    def _item(self, item: Item) -> int:
        if isinstance(item, Reference):
            return self._rule(item.name)
        if isinstance(item, Token | Terminal):
            raise _NoParts
        if isinstance(item, Chars):
            part = GrammarPart(ranges=ranges_of(item))
        elif isinstance(item, Repeat):
            part = GrammarPart((), (self._sequence(item.item),), item.low, item.high)
        else:
            part = GrammarPart(choices=self._choices(item))
        if part not in self._known:
            self._known[part] = self._add(part)
        return self._known[part]
