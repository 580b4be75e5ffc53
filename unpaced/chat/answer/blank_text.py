"""Text of which nothing is passed on as long as it is white space."""

from collections.abc import Callable


class WithoutBlank:
    """Passes text on, but none that is white space from beginning to end."""

    def __init__(self, out: Callable[[str], None]) -> None:
        self._out = out
        self._blank: str | None = ""

    def __call__(self, text: str) -> None:
        if self._blank is None:
            self._out(text)
            return
        self._blank += text
        if self._blank.strip():
            self._out(self._blank)
            self._blank = None
