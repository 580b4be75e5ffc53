"""When freed memory is given back to the system: what an attack took must not stay with the server.

The allocator does so by itself at the top of an arena only (csrc/base/heap_reserve.h), and answers
of megabytes leave holes everywhere.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_GROWN_BYTES: Final = 16 << 20
_STEADY_BYTES: Final = 1 << 20
_LONGEST_PAUSE: Final = 32
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class HeapWatch:
    """Call `look` each second, on the event loop: it waits for nothing.

    Memory that has grown by 16 MiB, and grows no more, is tried to give back. What is still there
    then may be in use for a while yet, an answer that nobody reads: it is tried again after pauses
    that double, a minute in all. After that it counts as in use. `give_back` runs on a thread;
    `own_bytes` tells what the process has for itself.
    """

    def __init__(
        self, give_back: Callable[[], None], own_bytes: Callable[[], int] | None = None
    ) -> None:
        self._give_back = give_back
        self._own_bytes = own_bytes or read_own_bytes
        self._in_use = self._last = self._own_bytes()
        self._pause = 1  # looks between two tries
        self._n_looks = 0  # since the last try
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin to give memory back, if it is time."""
        if self._task is not None and not self._task.done():
            return
        now = self._own_bytes()
        is_steady = now <= self._last + _STEADY_BYTES
        self._last = now
        self._in_use = min(now, self._in_use)
        self._n_looks += 1
        if now - self._in_use <= _GROWN_BYTES:
            self._pause = 1
        elif is_steady and self._n_looks >= self._pause:
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        await asyncio.to_thread(self._give_back)
        self._n_looks = 0
        self._last = self._own_bytes()
        if self._pause < _LONGEST_PAUSE:
            self._pause *= 2
        else:
            self._in_use, self._pause = self._last, 1


def read_own_bytes() -> int:
    """Resident memory that is no file's."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * _PAGE_BYTES
