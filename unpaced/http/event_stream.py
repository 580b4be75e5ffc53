"""What surrounds the events of a stream, whoever makes and carries them.

Around this there is `Disconnect`, which notices a client that leaves, in whatever state its request
is; the connection's send deadlines (`LimitedHttpProtocol`) end one that does not read; draining is
the process's (`unpaced.process.process`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.types import Message, Scope, Send

if TYPE_CHECKING:
    from engine_ext import TokenFrames

# It would cut every stream at SIGTERM.
AppStatus.enable_automatic_graceful_drain = False

_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


def head_message() -> dict[str, Any]:
    """The ASGI message that begins a stream; whoever sends it on may add headers to it."""
    return {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}


def body_message(data: bytes, *, more: bool = True) -> dict[str, Any]:
    """An ASGI message with a piece of the body."""
    return {"type": "http.response.body", "body": data, "more_body": more}


def _nothing() -> None:
    pass


class Pings:
    """A stream's `send`, which pings the client while the stream is silent.

    Pings come after the first message and before the last. It looks at time stamps that the stream
    and its frames keep, instead of arming a timer for every send: no cost on the token path. A task
    runs only while it pings: a stream that is never silent costs a timer.
    `ping_s` <= 0: no pings. Always `stop` it.
    """

    def __init__(self, send: Send, *, ping: bytes, ping_s: float) -> None:
        self._send = send
        self._ping = ping
        self._ping_s = ping_s
        self._is_sending = False
        self._period_s = max(0.02, ping_s / 4)
        self._timer: asyncio.TimerHandle | None = None  # None: nothing has been sent
        self._pinging: asyncio.Task[None] | None = None
        self.sent_at = 0.0
        """On `time.monotonic`; for who writes to the connection past `send`."""
        self.frames: TokenFrames | None = None
        """Where the engine writes them: sent as soon as they are there."""
        self.before_ping: Callable[[], None] = _nothing
        """For who writes to the connection past `send`: it is about to be written to."""
        self.is_pinging = False
        """Whether a ping is on its way, which may wait for a client that is behind."""

    async def send(self, message: Message) -> None:
        """Send as ASGI's `send` does: it waits for a client that is behind."""
        if self._timer is None and self._ping_s > 0:
            self._look_later()
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self.stop()
        self._is_sending, self.sent_at = True, time.monotonic()
        await self._send(message)
        self._is_sending = False

    def stop(self) -> None:
        """Ping no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        if self._is_sending or now - self._last_sent() < self._ping_s - self._period_s / 2:
            self._look_later()
            return
        self.sent_at = now
        self._pinging = asyncio.get_running_loop().create_task(self._send_ping())

    async def _send_ping(self) -> None:
        self.is_pinging = True
        self.before_ping()
        await self._send(body_message(self._ping))
        self.is_pinging = False
        self._look_later()

    def _last_sent(self) -> float:
        if self.frames is None:
            return self.sent_at
        return max(self.sent_at, self.frames.written_us * 1e-6)


async def send_events(events: AsyncIterator[bytes], scope: Scope, send: Send) -> None:
    """Send a whole stream by sse-starlette; `events` come in pieces of at least one.

    What it would do beside is done around it, for every stream alike: pings by `Pings`, whose
    `send` this is to be, the rest as above.
    """
    response = EventSourceResponse(events, ping=0, sep="\n")
    response.raw_headers = list(_HEADERS)
    await response(scope, _receive_nothing, send)


async def _receive_nothing() -> Message:
    await asyncio.Event().wait()
    raise AssertionError
