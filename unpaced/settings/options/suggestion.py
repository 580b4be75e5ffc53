"""What somebody who mistyped a name may have meant."""

from collections.abc import Iterable
from typing import Final

_LIKENESS_MIN: Final = 0.7


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where no known name is like it or goes on as it does."""
    import difflib  # nobody who types correctly waits for it

    names = sorted(known, key=len)
    like = difflib.get_close_matches(word, names, n=1, cutoff=_LIKENESS_MIN)
    longer = [name for name in names if name.startswith(word)] if len(word) > 3 else []
    found = (*longer, *like)
    return f"; did you mean {found[0]}?" if found else ""
