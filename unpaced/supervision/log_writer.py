"""Writes the supervisor's few log lines without a thread, and waits for nobody who reads them."""

import contextlib
import os
import select
from pathlib import Path
from typing import Final

from engine_ext import LogTarget

_NUMBERS: Final = {LogTarget.STDERR: 2, LogTarget.STDOUT: 1}


class LogWriter:
    """`logs.LineWriter`, beside a server that writes to the same places.

    A line for a pipe or a terminal that has no room for it is dropped. `file`: --log-file, opened
    anew for each line, since somebody may move it away.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def write(self, target: LogTarget, text: str) -> int:
        """Lines, ended. 0; -1 if they are dropped."""
        data = text.encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            if target is LogTarget.FILE:
                if self._file is not None:
                    with self._file.open("ab", buffering=0) as file:
                        file.write(data)
                return 0
            number = _NUMBERS[target]
            poll = select.poll()
            poll.register(number, select.POLLOUT)
            # A pipe that can be written to has room for a page.
            if any(events & select.POLLOUT for _, events in poll.poll(0)):
                os.write(number, data[: select.PIPE_BUF])
                return 0
        return -1
