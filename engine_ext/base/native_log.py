"""Where log lines go: the native libraries' own, and those of the program around the engine.

Both take the same way, so that they keep their order, and nobody who logs waits for a reader.
"""

import enum
import os
from pathlib import Path
from typing import Final

from engine_ext.base.native import load_native

# llama.cpp says at "info" what it does while loading, at length.
_LEVELS: Final[dict[str | None, int]] = {
    "debug": 2,
    "info": 3,
    "warning": 3,
    "error": 4,
    None: 5,
}


class LogTarget(enum.IntEnum):
    """Where a line goes."""

    STDERR = 0
    STDOUT = 1
    FILE = 2


class NativeLog:
    """The log of this process. Lines are written by threads that need no Python.

    Nobody waits for them: of each target at most `max_bytes` of lines wait, and what comes then is
    dropped and counted. `level`: the libraries' lines from this one on are shown, on standard error
    and in the file; llama.cpp's own "info" counts as "debug"; None: none is. A SIGBUS is explained
    before it ends the process. An abort within the native libraries, once the engine's clients are
    told, ends the process with `abort_status`; None: with SIGABRT. For once a process, before an
    engine is made. Raises: KeyError for another level.
    """

    def __init__(
        self, level: str | None, *, max_bytes: int, abort_status: int | None = None
    ) -> None:
        self._native = load_native()
        self._native.queue_log(max_bytes)
        self._native.install_log_sink(_LEVELS[level])
        self._native.explain_lost_pages()
        self._native.set_abort_status(abort_status or 0)

    def write(self, target: LogTarget, text: str) -> int:
        """Lines, ended. How many were dropped since the last that was not; -1: these are."""
        n_dropped: int = self._native.write_log(target, text.encode(errors="backslashreplace"))
        return n_dropped

    def open_file(self, path: Path) -> None:
        """Append to this file from now on; the one before is closed. Raises: OSError."""
        self._native.set_log_file(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))

    @property
    def n_dropped(self) -> int:
        """Lines that were dropped, of all targets."""
        n_dropped: int = self._native.count_dropped_log()
        return n_dropped

    def flush(self, limit_s: float) -> bool:
        """Wait until what was said is written; False if it takes longer."""
        is_written: bool = self._native.flush_log(int(limit_s * 1000))
        return is_written
