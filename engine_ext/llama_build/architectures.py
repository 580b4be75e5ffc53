"""From cards to what nvcc compiles for."""

from collections.abc import Iterable

from .driver import Card, Version

OLDEST: Version = (7, 5)
"""CUDA 13 compiles for nothing older than Turing."""

# What nvcc 13.0 knows. 12.x with its "a", as llama.cpp would make it: the FP4 products need it.
_MACHINE_CODE = {
    **{(n // 10, n % 10): f"{n}-real" for n in (75, 80, 86, 87, 88, 89, 90, 100, 103, 110)},
    **{(12, n): f"12{n}a-real" for n in (0, 1)},
}

# For a card that came later: PTX, which its driver compiles. Not of 12.0: with llama.cpp's "a" it
# runs on 12.0 alone.
_LATER = "100-virtual"


def supported(cards: Iterable[Card]) -> list[Card]:
    """Those that this version of CUDA compiles for."""
    return [card for card in cards if card.capability >= OLDEST]


def architectures(cards: Iterable[Card]) -> str:
    """CMAKE_CUDA_ARCHITECTURES for `cards`, such as "86-real;89-real": each once, in order."""
    capabilities = sorted({card.capability for card in supported(cards)})
    return ";".join(dict.fromkeys(_MACHINE_CODE.get(it, _LATER) for it in capabilities))
