"""Classes of characters: as ranges, as a regular expression, and as sets that compare quickly."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from unpaced.grammar.gbnf_tree import MAX_CODE_POINT, Chars, GbnfError

Ranges = tuple[tuple[int, int], ...]

_SURROGATES: Final = (0xD800, 0xDFFF)  # no UTF-8 text has them


def ranges_of(chars: Chars) -> Ranges:
    """Ascending, disjoint ranges of the characters that UTF-8 text can have. Raises: GbnfError."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(chars.ranges):
        if low > high:
            continue
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if chars.negated:
        gaps, begin = [], 0
        for low, high in merged:
            if begin < low:
                gaps.append((begin, low - 1))
            begin = high + 1
        merged = [*gaps, (begin, MAX_CODE_POINT)]
    kept = []
    for low, high in merged:
        for first, last in (
            (low, min(high, _SURROGATES[0] - 1)),
            (max(low, _SURROGATES[1] + 1), high),
        ):
            if first <= min(last, MAX_CODE_POINT):
                kept.append((first, min(last, MAX_CODE_POINT)))
    if not kept:
        raise GbnfError("a character class matches no character")
    return tuple(kept)


def regex_of(ranges: Ranges) -> str:
    """One character of `ranges`."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return f"\\x{{{ranges[0][0]:X}}}"
    parts = (
        f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}"
        for low, high in ranges
    )
    return f"[{''.join(parts)}]"


class CharacterSets:
    """Classes as bit sets over the runs of characters that no class tells apart."""

    def __init__(self, classes: Iterable[Ranges]) -> None:
        classes = set(classes)
        ends = {end for ranges in classes for low, high in ranges for end in (low, high + 1)}
        self._begins = sorted(ends)
        self._sets = {ranges: self._of(ranges) for ranges in classes}

    @property
    def beyond(self) -> int:
        """A set that has no character, and is not empty."""
        return 1 << len(self._begins)

    def __getitem__(self, ranges: Ranges) -> int:
        return self._sets[ranges]

    def _of(self, ranges: Ranges) -> int:
        bits = 0
        for low, high in ranges:
            first, end = bisect_left(self._begins, low), bisect_left(self._begins, high + 1)
            bits |= (1 << end) - (1 << first)
        return bits
