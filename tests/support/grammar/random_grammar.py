"""Random GBNF over a small alphabet: small rules that often begin alike, overlap and recur."""

import random
from typing import Final

_ITEMS: Final = (
    '"a"',
    '"b"',
    '"c"',
    '"ab"',
    '"abc"',
    '"ca"',
    '"é"',
    '"aé"',
    "[ab]",
    "[bc]",
    "[^a]",
    "[abc]",
)
_REPEATS: Final = ("*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}")


def random_gbnf(rng: random.Random) -> str:
    """One to four rules, each of which can end."""
    names = ["root", "r1", "r2", "r3"][: rng.randrange(1, 5)]
    lines = []
    for name in names:
        users = names if rng.random() < 0.2 else names[1:]
        # The first choice refers to no rule, so that every text can be completed.
        choices = [_choices(rng, 1, []), _choices(rng, rng.randrange(1, 4), users)]
        lines.append(f"{name} ::= {' | '.join(choices)}")
    return "\n".join(lines)


def _choices(rng: random.Random, depth: int, names: list[str]) -> str:
    choices = [_sequence(rng, depth, names) for _ in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.1:
        choices.insert(0, '""')
    return " | ".join(choices)


def _sequence(rng: random.Random, depth: int, names: list[str]) -> str:
    return " ".join(_item(rng, depth, names) for _ in range(rng.choice((1, 1, 2, 2, 3))))


def _item(rng: random.Random, depth: int, names: list[str]) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.45:
        return rng.choice(_ITEMS)
    if kind < 0.6 and names:
        return rng.choice(names)
    group = f"({_choices(rng, depth - 1, names)})"
    return group if kind < 0.75 else group + rng.choice(_REPEATS)
