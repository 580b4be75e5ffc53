"""The process that serves: started with its supervisor's sockets, its flags and its environment."""

import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from unpaced.http.wire.inherited import FIRST

_PR_SET_PDEATHSIG: Final = 1
_FAILED: Final = 127
_ONLY_OURS: Final = frozenset(
    {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
)
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """One server, from its start on. Times are time.monotonic's."""

    def __init__(self, sockets: Sequence[int], environment: Mapping[str, str]) -> None:
        """Start it. `environment` is added to ours, less what our own service manager told us."""
        self.began_s = time.monotonic()
        self.heard_s: float | None = None
        """When it has said something; None: it has not yet, and accepts nobody."""
        self.beat_s: float | None = None
        """When it has last said that all is well."""
        self.ready_s: float | None = None
        self.stopping_s: float | None = None
        self.hang = ""
        """What is wrong with it, in words, once that is known."""
        self._is_gone = False
        given = {k: v for k, v in os.environ.items() if k not in _ONLY_OURS} | dict(environment)
        self.pid = _start(sockets, given)

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if not self._is_gone:
            os.kill(self.pid, number)

    def mark_gone(self) -> None:
        """It was waited for: its number may be somebody else's from now on."""
        self._is_gone = True

    def told(self, fields: Mapping[str, str], now_s: float) -> None:
        """It has sent these."""
        self.heard_s = now_s
        if "READY" in fields:
            self.ready_s = self.beat_s = now_s
        if "WATCHDOG" in fields:
            self.beat_s = now_s
        if "STOPPING" in fields and self.stopping_s is None:
            self.stopping_s = now_s

    def excuse(self, now_s: float) -> None:
        """Nobody could hear it until now."""
        if self.heard_s is not None:
            self.heard_s = now_s
        if self.beat_s is not None:
            self.beat_s = now_s


def _start(sockets: Sequence[int], environment: dict[str, str]) -> int:
    command = [sys.executable, *sys.orig_argv[1:], "--no-supervise"]
    supervisor = os.getpid()
    # A signal that comes before the new program runs is not to be taken for one of ours.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        _become(command, sockets, environment, supervisor, before)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _become(
    command: list[str],
    sockets: Sequence[int],
    environment: dict[str, str],
    supervisor: int,
    mask: set[signal.Signals | int],
) -> NoReturn:
    """In the new process: become the server."""
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        # A process group of its own: what a terminal sends to all is handed on once. And a group in
        # the background may write to the terminal all the same.
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        # Without its supervisor nobody would stop it, and it would hold the port.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:
            os._exit(_FAILED)
        _place(sockets)
        environment |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets))}
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"unpaced serve: error: cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(_FAILED)


def _place(sockets: Sequence[int]) -> None:
    """They become the descriptors that sd_listen_fds(3) names; first each is out of the way."""
    above = FIRST + len(sockets)
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in sockets]
    for number, source in enumerate(moved, FIRST):
        os.dup2(source, number)
