"""Lists of pairs in one flag, such as `A=x,B=y`."""

from collections.abc import Iterable


def split_list(entries: Iterable[str]) -> list[str]:
    """The parts of comma-separated entries."""
    return [part.strip() for text in entries for part in text.split(",") if part.strip()]


def split_pairs(
    entries: Iterable[str], separator: str, *, at_last: bool = False
) -> tuple[tuple[str, str], ...]:
    """Pairs of comma-separated entries, split at the first separator, or at the last.

    Raises: ValueError for an entry with nothing on one side.
    """
    pairs = []
    for entry in split_list(entries):
        left, _, right = (entry.rpartition if at_last else entry.partition)(separator)
        if not left or not right:
            raise ValueError(f"each entry is A{separator}B, not {entry!r}")
        pairs.append((left, right))
    return tuple(pairs)


def parse_bias(entry: str) -> tuple[int, float]:
    """Token id and bias of "15043+1" or "15043-inf". Raises: ValueError."""
    for sign, factor in (("+", 1.0), ("-", -1.0)):
        token, found, bias = entry.partition(sign)
        if found and token.isdecimal():
            return int(token), factor * float(bias)
    raise ValueError(f"not ID+BIAS or ID-BIAS: {entry!r}")
