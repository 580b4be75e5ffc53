"""The front end's threads stay off the cores of others."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NATIVE_NAMES: Final = frozenset({"decode", "ggml"})
"""Names of the threads that the native engine places itself."""


class FrontEndCores:
    """Confines every thread of this process that is not the decode thread or one of ggml's.

    Threads made later inherit it from the thread that makes them.
    """

    def __init__(self, cores: list[int]) -> None:
        self._cores = set(cores)
        self._before: set[int] | None = None

    def confine(self) -> None:
        """For the calling thread's process; once."""
        self._before = os.sched_getaffinity(0)
        for thread in _front_end_threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, self._cores)

    def release(self) -> None:
        """Put things back as they were before `confine`. Idempotent."""
        if self._before is None:
            return
        for thread in _front_end_threads():
            with contextlib.suppress(ProcessLookupError):
                if os.sched_getaffinity(thread) == self._cores:
                    os.sched_setaffinity(thread, self._before)
        self._before = None


def _front_end_threads() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended
            if (task / "comm").read_text().strip() not in _NATIVE_NAMES:
                yield int(task.name)
