"""Where the native libraries' log lines go."""

import os
from pathlib import Path
from typing import Final

from engine_ext._load import load_native

# llama.cpp says at "info" what it does while loading, at length.
_LEVELS: Final[dict[str | None, int]] = {
    "debug": 2,
    "info": 3,
    "warning": 3,
    "error": 4,
    None: 5,
}


def set_native_log(level: str | None, file: Path | None = None) -> None:
    """Show lines of this level and above on standard error, and append them to `file` too.

    llama.cpp's own "info" counts as "debug". None: show nothing. For once a process, before an
    engine is made. Raises: KeyError for another level; OSError if the file cannot be written.
    """
    descriptor = -1
    if file is not None:
        # Stays open as long as the process: the libraries may write at any time.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    load_native().install_log_sink(_LEVELS[level], descriptor)
