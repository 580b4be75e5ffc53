"""Text that comes in pieces, for readers that are written as if it were all there.

A reader is a generator: it yields where it needs more text than has come, and goes on when there
is more. What it decides depends on the text alone, never on where the pieces were cut.
"""

import re
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
_SPACE: Final = " \t\r\n"


class EndOfText(Exception):
    """The text ended where the reader needed more."""


class TextSource:
    """The unread text, and what was read since the last `forget`."""

    __slots__ = ("_text", "at", "closed")

    def __init__(self) -> None:
        self._text = ""
        self.at = 0
        self.closed = False

    def push(self, text: str) -> None:
        """One more piece."""
        self._text += text

    @property
    def rest(self) -> str:
        """What has come and is unread."""
        return self._text[self.at :]

    def forget(self) -> None:
        """Nobody will rewind before here."""
        self._text = self._text[self.at :]
        self.at = 0

    def take(self, n: int) -> str:
        """Read `n` characters that have come."""
        taken = self._text[self.at : self.at + n]
        self.at += len(taken)
        return taken

    def since(self, at: int) -> str:
        """What was read from position `at` on."""
        return self._text[at : self.at]

    def wait(self) -> Reading[bool]:
        """Wait for another piece; False at the end of the text."""
        n = len(self._text)
        while len(self._text) == n:
            if self.closed:
                return False
            yield
        return True

    def peek(self) -> Reading[str]:
        """The next character, unread; "" at the end of the text."""
        while self.at >= len(self._text):
            if not (yield from self.wait()):
                return ""
        return self._text[self.at]

    def skip_space(self) -> Reading[None]:
        """Read whitespace."""
        while True:
            while self.at < len(self._text) and self._text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self._text) or not (yield from self.wait()):
                return

    def match(self, mark: str) -> Reading[bool]:
        """Read `mark` if it comes next. Whitespace in it stands for any whitespace, or none."""
        at = self.at
        for part in mark.split():
            yield from self.skip_space()
            while len(self._text) - self.at < len(part) and part.startswith(self.rest):
                if not (yield from self.wait()):
                    break
            if not self._text.startswith(part, self.at):
                self.at = at
                return False
            self.at += len(part)
        return True

    def until(self, mark: str) -> Reading[str]:
        """Everything before `mark`, which is read too. Raises: EndOfText, nothing read."""
        start = self.at
        while True:
            found = self._text.find(mark, self.at)
            if found >= 0:
                self.at = found + len(mark)
                return self._text[start:found]
            self.at = max(start, len(self._text) - len(mark) + 1)
            if not (yield from self.wait()):
                self.at = start
                raise EndOfText

    def run_of(self, characters: "re.Pattern[str]") -> Reading[str]:
        """The longest run of characters that match one by one, "" included."""
        run = ""
        while True:
            found = characters.match(self._text, self.at)
            if found is not None:
                self.at = found.end()
                run += found[0]
            if self.at < len(self._text) or not (yield from self.wait()):
                return run


def n_held(text: str, mark: str) -> int:
    """Length of the longest suffix of `text` that begins `mark` without completing it."""
    at = text.find(mark[0], max(0, len(text) - len(mark) + 1))
    while at >= 0:
        if mark.startswith(text[at:]):
            return len(text) - at
        at = text.find(mark[0], at + 1)
    return 0
