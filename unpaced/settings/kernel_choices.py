"""Where the choices of kernels that were measured are kept."""

import os
from pathlib import Path


def kernel_choices() -> Path | None:
    """The folder in the user's cache, which need not be there; None: the user has no home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache / "unpaced" / "kernels"
