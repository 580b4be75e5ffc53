"""Ends of a text besides its stop strings: a line that is not indented enough, a time limit.

The rules are llama-server's (llama.cpp 0c1e57098 tools/server/server-context.cpp:1884-1931), with
its habit to look at the indentation of a line only once the next token has come.
"""


class TextLimits:
    """Looks at one sequence, token by token. `n_indent` 0 and `t_max_ms` below 1 mean no limit."""

    __slots__ = ("_line_start", "_n_indent", "_t_max_ms", "_text", "_was_new_line", "n_bytes_kept")

    def __init__(self, n_indent: int, t_max_ms: int) -> None:
        self._n_indent = n_indent
        self._t_max_ms = t_max_ms
        self._text = bytearray()
        self._line_start = 0
        self._was_new_line = False
        self.n_bytes_kept: int | None = None
        """Bytes of the text up to the line that ended it; None: nothing is cut off."""

    def ends(self, piece: bytes, text: str, elapsed_ms: float) -> bool:
        """True if this token is the last one. `text`: what it made final; `elapsed_ms`: since the
        first token.
        """
        ends = False
        if self._n_indent > 0:
            self._text += piece
            ends = self._was_new_line and self._is_outdented()
        if "\n" in text:
            self._was_new_line = True
            ends = ends or 0 < self._t_max_ms < elapsed_ms
        return ends

    @property
    def n_chars_kept(self) -> int | None:
        """As `n_bytes_kept`, in characters."""
        if self.n_bytes_kept is None:
            return None
        return len(self._text[: self.n_bytes_kept].decode(errors="replace"))

    def _is_outdented(self) -> bool:
        text, start = self._text, self._line_start
        outdented = False
        if start > 0:
            at = start
            while at < len(text) and text[at] in b" \t":
                at += 1
            if at < len(text) and at - start < self._n_indent:
                self.n_bytes_kept = at
                outdented = True
        new_line = text.find(b"\n", start)
        if new_line >= 0:
            self._line_start = new_line + 1
        return outdented
