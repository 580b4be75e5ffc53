"""From token bytes to text that may be sent: whole UTF-8 characters, stop strings cut out.

Pure: no I/O, no engine. The text of a stream is what `push` and `finish` return, joined; a request
that does not stream joins the same pieces, so both see the same text by construction.
"""

from collections.abc import Sequence

from unpaced.completion.utf8_prefix import decode_prefix


class TextStream:
    """Assembles one sequence's text. Feed it each token's bytes; send what it returns.

    * A UTF-8 sequence split over tokens is held back until it is whole; bytes that are no UTF-8
      become U+FFFD, as `bytes.decode(errors="replace")` has it.
    * The first push after which the text holds a stop string ends the text before the earliest
      occurrence; of stops that begin at the same place the first listed one is named. Nothing from
      there on is ever returned.
    * A suffix that may still become a stop string is held back, and no more than that.
    """

    __slots__ = ("_held", "_partial", "_stops", "stopping_word")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._partial = b""  # at most 3 bytes: the beginning of a UTF-8 sequence
        self._held = ""  # text that may be the beginning of a stop string
        self.stopping_word = ""

    @property
    def partial(self) -> bytes:
        """The beginning of a UTF-8 sequence that the last token ended in, at most 3 bytes.

        It may be set where another decoder has gone on in this one's place. None may where there
        are stop strings.
        """
        return self._partial

    @partial.setter
    def partial(self, partial: bytes) -> None:
        self._partial = partial

    @property
    def has_stops(self) -> bool:
        """Whether there is anything to look for in the text."""
        return bool(self._stops)

    def push(self, piece: bytes) -> str:
        """The text that one more token makes final; often "" and never past a stop string."""
        if self._partial:
            piece = self._partial + piece
        text, n_used = decode_prefix(piece)
        self._partial = piece[n_used:]
        if not self._stops:
            return text
        return self._cut(text)

    def finish(self) -> str:
        """What was held back, now that no token follows."""
        rest = self._partial.decode(errors="replace")
        self._partial = b""
        if self._stops:
            rest = self._cut(rest) + self._held
            self._held = ""
        return rest

    def _cut(self, new: str) -> str:
        if self.stopping_word:
            return ""
        text = self._held + new
        at = -1
        for stop in self._stops:
            found = text.find(stop)
            if found >= 0 and (at < 0 or found < at):
                at = found
                self.stopping_word = stop
        if at >= 0:
            self._held = ""
            self._partial = b""
            return text[:at]
        n_held = self._longest_possible_stop(text)
        if n_held == 0:
            self._held = ""
            return text
        self._held = text[-n_held:]
        return text[:-n_held]

    def _longest_possible_stop(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins a stop string."""
        longest = 0
        for stop in self._stops:
            first = stop[0]
            at = text.find(first, max(0, len(text) - len(stop) + 1))
            while at >= 0 and len(text) - at > longest:
                if stop.startswith(text[at:]):
                    longest = len(text) - at
                    break
                at = text.find(first, at + 1)
        return longest
