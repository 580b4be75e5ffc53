"""Where in a grammar a text can be: its characters as positions, and what may come after each.

Within a terminal this is Glushkov's automaton. Across terminals a rule's end leads to wherever the
rule is used, so that there are more ways than the grammar has, never fewer. Repetitions that are
counted are taken for endless ones, with the same effect.
"""

from collections.abc import Callable
from dataclasses import dataclass

from unpaced.grammar.characters import CharacterSets
from unpaced.grammar.gbnf_tree import Chars, Group, Reference, Repeat, Token
from unpaced.grammar.parts import Part, Parts, Series


@dataclass(slots=True)
class Ends:
    """Of a part of a terminal: the positions that it can begin and end with."""

    first: list[int]
    last: list[int]
    is_nullable: bool


class Automaton:
    """Positions of terminals. `inside[p]`: what may follow p in its terminal."""

    def __init__(self, sets: CharacterSets, spend: Callable[[int], None]) -> None:
        self.sets: list[int] = []  # the characters that a position stands for
        self.inside: list[list[int]] = []
        self._classes = sets
        self._spend = spend

    def add(self, characters: int) -> int:
        """A new position."""
        self.sets.append(characters)
        self.inside.append([])
        return len(self.sets) - 1

    def add_parts(self, parts: list[Part], is_counted: bool = False) -> Ends:
        """Parts one after the other. `is_counted`: repetitions are written out."""
        ends = Ends([], [], True)
        for part in parts:
            self._append(ends, self.add_part(part, is_counted))
        return ends

    def add_part(self, part: Part, is_counted: bool = False) -> Ends:
        """A regular part."""
        item = part.item
        if isinstance(item, Chars):
            position = self.add(self._classes[part.ranges])
            return Ends([position], [position], False)
        if isinstance(item, Repeat):
            return self._repeat(part.inner[0].parts, item.low, item.high, is_counted)
        ends = Ends([], [], False)
        for series in part.inner:
            choice = self.add_parts(series.parts, is_counted)
            ends.first += choice.first
            ends.last += choice.last
            ends.is_nullable = ends.is_nullable or choice.is_nullable
        return ends

    def is_told_apart(self, positions: list[int]) -> bool:
        """Whether a character is in the set of one of them at most."""
        found = 0
        for position in dict.fromkeys(positions):
            if found & self.sets[position]:
                return False
            found |= self.sets[position]
        return True

    def n_states(self, first: list[int], limit: int) -> int:
        """Sets of positions that a text can lead to, at most `limit` + 1 of them."""
        start = frozenset(first)
        seen, todo = {start}, [start]
        while todo and len(seen) <= limit:
            for after in self._steps(todo.pop()):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return len(seen)

    def _steps(self, begins: frozenset[int]) -> set[frozenset[int]]:
        """From the positions that a character may be at, to those of the next one."""
        found = set()
        left = 0
        for position in begins:
            left |= self.sets[position]
        while left:
            # All characters that exactly these positions stand for.
            lowest = left & -left
            taken = [p for p in begins if self.sets[p] & lowest]
            same = left
            for position in begins:
                bits = self.sets[position]
                same &= bits if bits & lowest else ~bits
            left &= ~same
            after = {p for position in taken for p in self.inside[position]}
            self._spend(len(begins) + len(after) + 1)
            found.add(frozenset(after))
        return found

    def _repeat(self, parts: list[Part], low: int, high: int | None, is_counted: bool) -> Ends:
        if high == 0:
            return Ends([], [], True)
        if not is_counted:
            ends = self.add_parts(parts)
            if high != 1:
                self._link(ends.last, ends.first)
            ends.is_nullable = ends.is_nullable or low == 0
            return ends
        n_copies = max(low, 1) if high is None else high
        ends = copy = self.add_parts(parts, True)
        if copy.is_nullable:
            low = 0  # some copies, none of them empty
        ends = Ends(copy.first, copy.last if low <= 1 else [], low == 0)
        for i in range(2, n_copies + 1):
            before, copy = copy, self.add_parts(parts, True)
            self._link(before.last, copy.first)
            if i >= low:
                ends.last = ends.last + copy.last
        if high is None:
            self._link(copy.last, copy.first)
        return ends

    def _append(self, ends: Ends, after: Ends) -> None:
        self._link(ends.last, after.first)
        if ends.is_nullable:
            ends.first = ends.first + after.first
        ends.last = ends.last + after.last if after.is_nullable else after.last
        ends.is_nullable = ends.is_nullable and after.is_nullable

    def _link(self, last: list[int], first: list[int]) -> None:
        self._spend(len(last) * len(first) + 1)
        for position in last:
            self.inside[position] += first


class Positions(Automaton):
    """The positions of a grammar as it is cut now."""

    def __init__(self, parts: Parts, sets: CharacterSets, spend: Callable[[int], None]) -> None:
        super().__init__(sets, spend)
        self.places: list[tuple[Series, int]] = []  # the part that a position is in
        self.exits: list[int | None] = []  # where a position leads to that can end its terminal
        self.terminals: list[tuple[Series, int, int]] = []
        self._ways: list[list[int]] = []  # from a place between terminals to others
        self._begins: list[list[int]] = []  # positions that begin a terminal there
        self._after: dict[int, list[int]] = {}
        self._after_sets: dict[int, int] = {}
        self._rules: dict[str, tuple[int, int]] = {}
        self._waiting: list[str] = []
        self._parts = parts
        self._token = sets.beyond
        self.start = self._rule("root")[0]
        while self._waiting:
            name = self._waiting.pop()
            self._add_series(parts.rule(name), *self._rules[name])

    def after(self, place: int) -> list[int]:
        """The positions that may come next at a place between terminals."""
        if place not in self._after:
            seen, todo = {place}, [place]
            found: dict[int, None] = {}
            while todo:
                here = todo.pop()
                self._spend(1 + len(self._begins[here]) + len(self._ways[here]))
                found.update(dict.fromkeys(self._begins[here]))
                for there in self._ways[here]:
                    if there not in seen:
                        seen.add(there)
                        todo.append(there)
            self._after[place] = list(found)
        return self._after[place]

    def after_set(self, place: int) -> int:
        """The characters that may come next there."""
        if place not in self._after_sets:
            found = 0
            for position in self.after(place):
                found |= self.sets[position]
            self._after_sets[place] = found
        return self._after_sets[place]

    def _place(self) -> int:
        self._ways.append([])
        self._begins.append([])
        return len(self._ways) - 1

    def _rule(self, name: str) -> tuple[int, int]:
        if name not in self._rules:
            self._rules[name] = (self._place(), self._place())
            self._waiting.append(name)
        return self._rules[name]

    def _add_series(self, series: Series, begin: int, end: int) -> None:
        for first, last in series.pieces():
            place = self._place()
            part = series.parts[first]
            if part.is_whole:
                self._add_terminal(series, first, last, begin, place)
            else:
                self._add_open(series, first, begin, place)
            begin = place
        self._ways[begin].append(end)

    def _add_terminal(self, series: Series, first: int, end: int, begin: int, after: int) -> None:
        self.terminals.append((series, first, end))
        ends = Ends([], [], True)
        for i in range(first, end):
            self._append(ends, self.add_part(series.parts[i]))
            self.places += [(series, i)] * (len(self.sets) - len(self.places))
        self.exits += [None] * (len(self.sets) - len(self.exits))
        for position in ends.last:
            self.exits[position] = after
        self._begins[begin] += ends.first
        if ends.is_nullable:
            self._ways[begin].append(after)

    def _add_open(self, series: Series, i: int, begin: int, after: int) -> None:
        part = series.parts[i]
        item = part.item
        if isinstance(item, Token):
            position = self.add(self._token)
            self.places.append((series, i))
            self.exits.append(after)
            self._begins[begin].append(position)
        elif isinstance(item, Reference):
            enter, leave = self._rule(item.name)
            self._ways[begin].append(enter)
            self._ways[leave].append(after)
        elif isinstance(item, Group):
            for series in part.inner:
                self._add_series(series, begin, after)
        else:
            assert isinstance(item, Repeat)  # a character is never opened
            again, done = self._place(), self._place()
            self._ways[begin].append(again)
            self._ways[done].append(after)
            if item.low == 0:
                self._ways[begin].append(after)
            if item.high != 0:
                self._add_series(part.inner[0], again, done)
            if item.high is None or item.high > 1:
                self._ways[done].append(again)
