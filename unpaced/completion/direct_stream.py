"""The token path: one choice's events, written from within the engine's wake-up."""

import asyncio
import time

from unpaced.completion.choice import Choice
from unpaced.http.event_stream import Pings, body_message, head_message
from unpaced.http.wire.connection import Connection, as_chunk


class DirectStream:
    """Writes a choice's events to the connection, while the client keeps up.

    No task runs and nothing is awaited for a token: one wake-up of the engine is one write,
    whatever the number of tokens. Where the choice's frames hold nothing but its text and numbers,
    there is not even an event: the engine makes them, and a thread of its own sends them.
    """

    def __init__(
        self, choice: Choice, connection: Connection, pings: Pings, *, progress: bool
    ) -> None:
        self._choice = choice
        self._write = connection.write
        self._socket = connection.socket
        self._pings = pings
        self._progress = progress
        self._left: asyncio.Future[None]
        self._is_behind = False

    async def send(self) -> None:
        """Submit the choice and send its whole stream. Raises: ApiError if it fails before."""
        choice, send = self._choice, self._pings.send
        sequence_text, writer = choice.sequence_text, choice.writer
        frames = await choice.first_frames(progress=self._progress)
        self._pings.before_ping = self._on_ping
        await send(head_message())
        writer.precompute()
        while not sequence_text.is_over:
            if frames or self._is_behind:
                await send(body_message(frames))  # waits for a client that is behind
                self._is_behind = False
            await self._keep_up()
            frames = b""
        choice.close()
        if sequence_text.error is None:
            frames += writer.final([writer]) + writer.done
        await send(body_message(frames, more=False))

    async def _keep_up(self) -> None:
        """Return when the choice is over and its tokens are written, or when the client must be
        waited for, as `send` does."""
        self._left = asyncio.get_running_loop().create_future()
        self._choice.listen(self._on_events)
        self._on_events()
        try:
            await self._left
        finally:
            self._choice.listen(None)

    def _on_events(self) -> None:
        if self._left.done():
            return
        try:
            self._take_connection()
            frames = self._choice.take_frames(progress=self._progress)
            if frames:
                # Before the end is made, which would keep a short answer's first token waiting.
                self._pings.sent_at = time.monotonic()
                self._is_behind |= not self._write(as_chunk(frames))
            if self._is_behind or self._choice.sequence_text.is_over:
                self._leave()
                return
            self._choice.frame(self._on_framed)
            framing = self._choice.framing
            self._pings.frames = None if framing is None else framing.frames
        except Exception as error:  # the engine's wake-up serves other streams too
            self._fail(error)

    def _on_framed(self) -> None:
        framing = self._choice.framing
        try:
            if framing is None:  # with a request's end they have gone out together
                return
            if not self._pings.is_pinging:
                socket = self._socket()
                if socket >= 0 and framing.attach(socket):
                    return
            chunk = framing.frames.take_chunk()
            if chunk and not self._write(chunk):
                self._is_behind = True
                self._leave()
        except Exception as error:
            self._fail(error)

    def _on_ping(self) -> None:
        # Before the stream is kept up with there is nothing to take.
        if self._choice.framing is not None:
            self._on_events()

    def _take_connection(self) -> None:
        rest = self._choice.end_framing()
        if rest and not self._write(rest):
            self._is_behind = True

    def _leave(self) -> None:
        self._choice.listen(None)
        self._left.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._choice.listen(None)
        self._left.set_exception(error)
