"""A stretch of a stream whose frames the engine writes, past Python, from its begin to its end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from engine_ext import TokenFrames
from unpaced.completion.writer import ChoiceWriter

if TYPE_CHECKING:
    from engine_ext import TokenStream


class Framing:
    """From where the text is handed over to the engine's `frames` to where it is taken back."""

    __slots__ = ("_stream", "_writer", "frames")

    def __init__(self, frames: TokenFrames, stream: "TokenStream", writer: ChoiceWriter) -> None:
        self.frames = frames
        self._stream = stream
        self._writer = writer

    @classmethod
    def begin(
        cls, stream: "TokenStream", writer: ChoiceWriter, listener: Callable[[], None]
    ) -> Self | None:
        """Have the engine write the frames of tokens itself, and call `listener` when there are
        some. None where each token must be looked at. Call it when all events have been taken."""
        text = writer.sequence_text
        template = writer.template() if text.allows_frames else None
        if template is None:
            return None
        frames = text.hand_over(template)
        if not stream.frame(frames, listener):
            text.take_back()
            return None
        return cls(frames, stream, writer)

    def attach(self, socket: int) -> bool:
        """See `TokenStream.attach`."""
        return self._stream.attach(socket)

    def end(self) -> tuple[bytes, bytes]:
        """Have tokens come as events again. Returns what is to be written next, as it is, mostly
        nothing, and the frames that nobody has taken."""
        rest = self._stream.unframe()
        self._writer.sequence_text.take_back()
        self._writer.framed(self.frames.take_text().decode())
        return rest, self.frames.take()
