"""From choices to server-sent events: the token path.

A stream with one choice, the usual one, is written as raw ASGI messages: one wake-up of the engine
becomes one write, whatever the number of tokens. Several choices are merged and go through
sse-starlette, which is the simpler way and costs more an event (docs/bench/sse.md).
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.types import Message, Scope, Send

from server.completion.choice import Choice
from server.completion.merged_stream import MergedStream
from server.http.connection import Connection, as_chunk, connection_of

# It would cut every stream at SIGTERM; draining is ours (serve.py).
AppStatus.enable_automatic_graceful_drain = False

PING: Final = b":\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Pings:
    """Pings a silent stream; no cost on the token path.

    It looks at time stamps that the stream and a choice's framing keep, instead of arming a timer
    for every send. `choice`: None where frames are sent as they come. `ping_s` <= 0: no pings.
    """

    def __init__(self, send: Send, choice: Choice | None = None, *, ping_s: float) -> None:
        self._send = send
        self._choice = choice
        self._ping = PING if choice is None else choice.writer.ping
        self._ping_s = ping_s
        self.sent_at = time.monotonic()
        self.is_sending = False
        self._task: asyncio.Task[None] | None = None
        if ping_s > 0:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Call once, whatever happened."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        period = max(0.02, self._ping_s / 4)
        while True:
            await asyncio.sleep(period)
            now = time.monotonic()
            if not self.is_sending and now - self._last_sent() >= self._ping_s - period / 2:
                self.sent_at = now
                await self._send(body_message(self._ping))

    def _last_sent(self) -> float:
        framing = None if self._choice is None else self._choice.framing
        if framing is None:
            return self.sent_at
        return max(self.sent_at, framing.frames.written_us * 1e-6)


def body_message(data: bytes, *, more: bool = True) -> dict[str, Any]:
    """An ASGI message with a piece of the body."""
    return {"type": "http.response.body", "body": data, "more_body": more}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is carried. `ping_s` <= 0: no pings."""

    progress: bool
    ping_s: float


class DirectStream:
    """Writes a choice's events from within the engine's wake-up, while the client keeps up.

    No task runs and nothing is awaited for a token. Where its frames hold nothing but its text and
    numbers, there is not even an event: the engine writes them, and hands over bytes.
    """

    def __init__(
        self, choice: Choice, connection: Connection, pings: Pings, options: StreamOptions
    ) -> None:
        self._choice = choice
        self._write = connection.write
        self._pings = pings
        self._progress = options.progress
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Return when the choice is over and its tokens are written, or when the client must be
        waited for, as `send` does."""
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
            frames = self._choice.take_frames(progress=self._progress)
            if frames:
                # Before the end is made, which would keep a short answer's first token waiting.
                self._pings.sent_at = time.monotonic()
            is_behind = bool(frames) and not self._write(as_chunk(frames))
            if is_behind or self._choice.generation.is_over:
                self._leave()
                return
            self._choice.frame(self._on_framed)
        except Exception as error:  # the engine's wake-up serves other streams too
            self._fail(error)

    def _on_framed(self) -> None:
        framing = self._choice.framing
        try:
            # With a request's end they have gone out together.
            chunk = framing.frames.take_chunk() if framing is not None else b""
            if chunk and not self._write(chunk):
                self._leave()
        except Exception as error:
            self._fail(error)

    def _leave(self) -> None:
        self._choice.listen(None)
        self._left.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._choice.listen(None)
        self._left.set_exception(error)


async def stream_one(choice: Choice, scope: Scope, send: Send, options: StreamOptions) -> None:
    """Submit and stream one choice. Headers go out when its slot starts the prompt.

    Raises: ApiError if it fails before that.
    """
    await choice.submit()
    frames = await choice.read_frames(progress=options.progress)
    generation, writer = choice.generation, choice.writer
    if generation.error is not None and generation.timings.start_us == 0:
        raise generation.error
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    pings = Pings(send, choice, ping_s=options.ping_s)
    # None under another server than ours: then every token goes through `send`.
    connection = connection_of(scope)
    try:
        writer.prepare()
        while not generation.is_over:
            pings.is_sending, pings.sent_at = True, time.monotonic()
            await send(body_message(frames))
            pings.is_sending = False
            if connection is None:
                frames = await choice.read_frames(progress=options.progress)
            else:
                await DirectStream(choice, connection, pings, options).run()
                frames = b""
        choice.close()
        if generation.error is None:
            frames += writer.final([writer]) + writer.done
        pings.is_sending = True
        await send(body_message(frames, more=False))
    finally:
        pings.stop()


async def stream_merged(
    choices: Sequence[Choice], scope: Scope, send: Send, options: StreamOptions
) -> None:
    """Submit and stream several choices, their events interleaved.

    Raises: ApiError if one fails before any has started.
    """
    merged = MergedStream(choices, progress=options.progress)
    try:
        await merged.started()
        response = EventSourceResponse(
            merged.frames(),
            ping=max(0.0, options.ping_s),
            ping_message_factory=lambda: ServerSentEvent(comment="", sep="\n"),
            sep="\n",
        )
        response.raw_headers = list(_HEADERS)
        await response(scope, _receive_nothing, send)
    finally:
        merged.close()


async def _receive_nothing() -> Message:
    """`Disconnect` listens to the client already."""
    await asyncio.Event().wait()
    raise AssertionError
