"""How far two texts agree."""


def common_prefix(one: str, other: str) -> str:
    """The longest text that both begin with."""
    n = 0
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:n]
    return one[: min(len(one), len(other))]
