"""One thread of another process made to stand still, as a hang in a driver does: by ptrace."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_WALL: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class CannotFreeze(Exception):
    """This system lets nobody trace."""


def thread_of(pid: int, name: str) -> int:
    """The id of the process's thread of this name. Raises: LookupError."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise LookupError(name)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) < 0:
        raise CannotFreeze(os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def frozen(thread: int) -> Iterator[None]:
    """The thread stands still inside. Call it from one thread; the process may end inside.

    Raises: CannotFreeze.
    """
    _ptrace(_SEIZE, thread)
    _ptrace(_INTERRUPT, thread)
    os.waitpid(thread, _WALL)
    try:
        yield
    finally:
        # PTRACE_DETACH. A process that has ended has been reaped, its thread by `reap`.
        _libc.ptrace(17, thread, None, None)


def exit_status(pid: int, thread: int, timeout_s: float) -> tuple[int, float]:
    """Wait for the process of a frozen thread: its exit status, and the seconds it took.

    Raises: TimeoutError.
    """
    started = time.monotonic()
    while time.monotonic() - started < timeout_s:
        # The tracer learns of its thread's end first; until then the process is not reaped.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(thread, os.WNOHANG | _WALL)
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            return os.waitstatus_to_exitcode(status), time.monotonic() - started
        time.sleep(0.02)
    raise TimeoutError
