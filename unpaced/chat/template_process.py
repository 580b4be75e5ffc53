"""A process that renders templates, from the server's side: one question, one answer, no endless
wait.

Threads that may block; one question at a time.
"""

import os
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Final

from unpaced.rendering.frames import LENGTH

_COMMAND: Final = (sys.executable, "-I", "-m", "unpaced.rendering.worker")
# Between two looks at whether a process that does not answer has been stopped.
_LOOK_S: Final = 0.1
_READ_BYTES: Final = 1 << 20


class ProcessEnded(Exception):
    """It ended before it answered. `status`: as of `subprocess.Popen.returncode`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it ended with status {status}")
        self.status = status


class ProcessStopped(Exception):
    """It was stopped by a signal, and nobody lets it go on."""


class ProcessSilent(Exception):
    """It did not answer in time."""


class TemplateProcess:
    """Starts it. Raises: OSError. Always `end` it."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C in a terminal is for the server alone.
        self._process = process = subprocess.Popen(
            _COMMAND,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        self._questions, self._answers = process.stdin.fileno(), process.stdout.fileno()
        for file in (self._questions, self._answers):
            os.set_blocking(file, False)
        self.end = weakref.finalize(self, _end, process)

    @property
    def is_usable(self) -> bool:
        """It lives and runs."""
        return self._process.poll() is None and not self._is_stopped()

    def ask(self, question: bytes, limit_s: float) -> bytes:
        """The answer. After an error there will be no further one: `end` it.

        Raises: ProcessEnded, ProcessStopped, ProcessSilent.
        """
        deadline = time.monotonic() + limit_s
        try:
            self._write(LENGTH.pack(len(question)) + question, deadline)
            (length,) = LENGTH.unpack(self._read(LENGTH.size, deadline))
            return self._read(length, deadline)
        except (BrokenPipeError, EOFError):
            self._process.kill()  # it may have closed its pipes and live
            raise ProcessEnded(self._process.wait()) from None

    def _write(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(self._questions, select.POLLOUT, deadline)
            rest = rest[os.write(self._questions, rest[:_READ_BYTES]) :]

    def _read(self, n: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < n:
            self._wait(self._answers, select.POLLIN, deadline)
            piece = os.read(self._answers, min(n - len(data), _READ_BYTES))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _wait(self, file: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(file, event)
        while not poll.poll(_LOOK_S * 1e3):
            if self._is_stopped():
                raise ProcessStopped
            if time.monotonic() > deadline:
                raise ProcessSilent

    def _is_stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[0] in (b"T", b"t")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
