"""Makes a grammar's terminals as long as they can be without a change of what it accepts.

llguidance's lexer knows which terminals may stand at a place. It takes the longest text that one of
them matches, and never goes back. So a place is safe if no text can be a terminal there, with a
character after it that the grammar allows, while some terminal of the same place goes on with that
character. Two readers of the same text, each at a position of its own, find the places that are
not: they begin a terminal together, and one of them ends where the other one goes on. There the
terminal is cut, or opened, and the search begins anew. With a character each nothing is left to
cut, so it ends.

Terminals that end at the same character are no danger: the lexer reports all of them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from unpaced.grammar.characters import CharacterSets
from unpaced.grammar.gbnf_tree import Group
from unpaced.grammar.parts import Parts, Series, TooLarge, written
from unpaced.grammar.positions import Automaton, Positions

MAX_WORK: Final = 500_000  # steps, 0.2 s of them; llama.cpp's grammars take 26,000 at most
MIN_STATES: Final = 500  # that a terminal's automaton may have, or twice its characters


def with_terminals(rules: Mapping[str, Group]) -> dict[str, Group] | None:
    """The rules that `root` needs, with terminals; None: too large to be looked into.

    Raises: GbnfError.
    """
    try:
        return _Cutter(rules).cut()
    except (TooLarge, RecursionError):  # the latter: rules nested deeply that use others such
        return None


class _Cutter:
    def __init__(self, rules: Mapping[str, Group]) -> None:
        self._parts = Parts(rules)
        self._left = MAX_WORK
        for name in rules:
            self._parts.rule(name)
        self._sets = CharacterSets(self._parts.classes)
        self._small: set[tuple[int, int, int]] = set()

    def cut(self) -> dict[str, Group]:
        while True:
            positions = Positions(self._parts, self._sets, self._spend)
            if not self._cut_where_readers_part(positions) and not self._cut_large(positions):
                break
        rules: dict[str, Group] = {}
        waiting = {"root"}
        while waiting:
            name = waiting.pop()
            used: set[str] = set()
            rules[name] = Group((written(self._parts.rule(name), used),))
            waiting |= used - rules.keys()
        return rules

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise TooLarge

    def _cut_where_readers_part(self, positions: Positions) -> bool:
        cuts: dict[tuple[int, int, int], tuple[Series, int, int]] = {}
        for here, there in _Readers(positions, self._spend).parting():
            series, i = positions.places[here]
            _, k = positions.places[there]
            cuts[id(series), i, k] = (series, i, k)
        for series, i, k in cuts.values():
            if k > i:
                series.cuts.add(i + 1)
            else:
                _cut_out(series, i)
        return bool(cuts)

    def _cut_large(self, positions: Positions) -> bool:
        is_cut = False
        for series, first, end in positions.terminals:
            key = (id(series), first, end)
            if key in self._small:
                continue
            if self._is_small(series, first, end):
                self._small.add(key)
                continue
            is_cut = True
            if end - first > 1:
                series.cuts |= set(range(first, end + 1))
            else:
                series.parts[first].is_open = True
        return is_cut

    def _is_small(self, series: Series, first: int, end: int) -> bool:
        """Whether the automaton of a terminal is about as large as the terminal."""
        parts = series.parts[first:end]
        for is_counted in (False, True):  # the former is cheap, and enough for most
            automaton = Automaton(self._sets, self._spend)
            starts = automaton.add_parts(parts, is_counted).first
            if all(automaton.is_told_apart(after) for after in (starts, *automaton.inside)):
                return True
        limit = max(MIN_STATES, 2 * len(automaton.sets))
        return automaton.n_states(starts, limit) <= limit


def _cut_out(series: Series, i: int) -> None:
    """Part i becomes a terminal of its own; where it is one, it is opened."""
    if any(first == i and end == i + 1 for first, end in series.pieces()):
        series.parts[i].is_open = True
    else:
        series.cuts |= {i, i + 1}


class _Readers:
    """Pairs of positions that two readers of the same text can be at.

    Both began a terminal at the same character, the one that they are in.
    """

    def __init__(self, positions: Positions, spend: Callable[[int], None]) -> None:
        self._positions = positions
        self._spend = spend
        self._todo: list[tuple[int, int]] = []
        self._seen: set[tuple[int, int]] = set()
        self._begun: set[tuple[int, int]] = set()

    def parting(self) -> Iterator[tuple[int, int]]:
        """Steps within a terminal that one takes where the other may end its own, and go on."""
        positions = self._positions
        self._begin(positions.start, positions.start)
        while self._todo:
            p, q = self._todo.pop()
            ends = positions.exits[p], positions.exits[q]
            for here, end in ((q, ends[0]), (p, ends[1])):
                if end is None:
                    continue
                beyond = positions.after_set(end)
                for there in positions.inside[here]:
                    if positions.sets[there] & beyond:
                        yield here, there
            self._step(positions.inside[p], positions.inside[q])
            if ends[0] is not None and ends[1] is not None:
                self._begin(ends[0], ends[1])

    def _begin(self, p: int, q: int) -> None:
        if (p, q) not in self._begun:
            self._begun |= {(p, q), (q, p)}
            self._step(self._positions.after(p), self._positions.after(q))

    def _step(self, ps: list[int], qs: list[int]) -> None:
        sets = self._positions.sets
        self._spend(1 + len(ps) * len(qs))
        for p in ps:
            for q in qs:
                if sets[p] & sets[q]:
                    pair = (p, q) if p < q else (q, p)
                    if pair not in self._seen:
                        self._seen.add(pair)
                        self._todo.append(pair)
