"""`unpaced` on a real pseudo-terminal, and what it shows there."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pexpect

from tests.support.server import UNPACED

ENTER, NEW_LINE, CTRL_C, CTRL_D, UP, TAB = "\r", "\n", "\x03", "\x04", "\x1b[A", "\t"
_PROMPT = r"\x1b\[\?2004h"  # pasted text is marked from here on
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """A program that runs on a terminal of 120 columns."""

    def __init__(self, child: "pexpect.spawn[str]") -> None:
        self.child = child

    def type(self, *texts: str) -> None:
        """Press keys."""
        for text in texts:
            self.child.send(text)

    def until(self, pattern: str, timeout_s: float = 60) -> str:
        """What is shown up to and with a pattern, without escape sequences."""
        self.child.expect(pattern, timeout=timeout_s)
        return plain(self.child.before + self.child.after)

    def input(self, *texts: str) -> None:
        """Wait for the prompt, then press keys: before it the terminal itself would edit them."""
        self.child.expect(_PROMPT, timeout=60)
        self.type(*texts)

    def end(self, timeout_s: float = 30) -> int:
        """The exit status."""
        self.child.expect(pexpect.EOF, timeout=timeout_s)
        self.child.wait()
        status = self.child.exitstatus
        assert isinstance(status, int), self.child.signalstatus
        return status


def plain(text: str) -> str:
    """Without escape sequences."""
    return _ESCAPE.sub("", text)


@contextlib.contextmanager
def terminal(*arguments: str, state: Path, **env: str) -> Iterator[Terminal]:
    """`unpaced` with these arguments; `state` holds its history file."""
    child: pexpect.spawn[str] = pexpect.spawn(
        str(UNPACED),
        list(arguments),
        encoding="utf-8",
        dimensions=(40, 120),
        timeout=60,
        env={
            **os.environ,
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(state),
            "LLAMA_ARG_THREADS": "1",
        }
        | env,
    )
    child.delaybeforesend = None
    try:
        yield Terminal(child)
    finally:
        child.close(force=True)
