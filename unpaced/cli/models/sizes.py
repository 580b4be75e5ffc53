"""Sizes and counts as people read them."""


def show_bytes(n_bytes: int) -> str:
    """Such as 4.3 GB; powers of ten, as on Hugging Face."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"


def show_count(n: int) -> str:
    """Such as 8.03 B for parameters."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return str(n)
