"""Sets of cores as llama-server's flags write them."""

from typing import Final

_MAX_CORES: Final = 512
"""llama.cpp's GGML_MAX_N_THREADS."""


def cores_of_mask(mask: str) -> frozenset[int]:
    """Cores of a hexadecimal mask, lowest bit first; "0x" may be in front. Raises: ValueError."""
    if not mask:
        return frozenset()
    try:
        bits = int(mask.removeprefix("0x"), 16)
    except ValueError:
        raise ValueError("must be a hexadecimal mask") from None
    if bits < 0 or bits >> _MAX_CORES:
        raise ValueError(f"must be a mask of at most {_MAX_CORES} cores")
    return frozenset(core for core in range(_MAX_CORES) if bits >> core & 1)


def cores_of_range(text: str) -> frozenset[int]:
    """Cores of "LO-HI", both included; either may be left out. Raises: ValueError."""
    if not text:
        return frozenset()
    low, found, high = text.partition("-")
    if not found or not all(part == "" or part.isdecimal() for part in (low, high)):
        raise ValueError("must be LO-HI")
    first, last = int(low or 0), int(high or _MAX_CORES - 1)
    if last >= _MAX_CORES or first > last:
        raise ValueError(f"must be LO-HI, in order and below {_MAX_CORES}")
    return frozenset(range(first, last + 1))
