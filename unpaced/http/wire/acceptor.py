"""Accepts connections faster than requests can be served, and hands them over a few at a time.

uvloop's own server accepts one connection a turn of its loop, in which it serves everybody else.
So the last of 64 that connect at once waits while the others are served 64 times; and a flood waits
in the system's queue, which is first come, first served: a probe behind 2000 requests waits for all
of them. The native `WaitingRoom` empties that queue faster than one client can fill it.
"""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

import orjson
import structlog

from engine_ext import WaitingRoom
from unpaced.http.errors import JSON_TYPE, RETRY_AFTER_S, unavailable
from unpaced.http.wire.pace import Pace

BACKLOG: Final = 4096
_ACCEPTING_NS: Final = 4_000_000  # of processor time in a turn: who is handed over waits for it
_N_WAITING_MAX: Final = 1024
_PAUSE_S: Final = 0.1
_TELL_EVERY_S: Final = 1.0
_log: Final = structlog.stdlib.get_logger("unpaced")


def _refusal(why: str) -> bytes:
    body = orjson.dumps(unavailable(why).to_json())
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n"
        b"retry-after: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
        % (RETRY_AFTER_S.encode(), JSON_TYPE.encode(), len(body))
    ) + body


_CROWDED: Final = _refusal("the queue is full: too many connections wait to be served")
_STOPPING: Final = _refusal("the server is stopping")


class Acceptor:
    """Listens on sockets; what it does not serve for want of time gets a 503.

    It has what uvicorn asks of a server. `new_protocol` makes the protocol of a connection, which
    gets the bytes that have come already. `n_waiting_max`: how many may wait that ask for a page,
    how many that want work done, and how many that have said nothing. `on_refused` is called with
    the number of those without room. Event loop's thread only. `clock`: seconds.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        new_protocol: Callable[[bytes], asyncio.Protocol],
        *,
        n_waiting_max: int,
        on_refused: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners = listeners
        self._pace = Pace(clock)
        self._new_protocol = new_protocol
        self._on_refused = on_refused
        self._room = WaitingRoom(n_waiting_max, _CROWDED)
        self._n_refused = 0
        self._loop = asyncio.get_running_loop()
        self._next_turn: asyncio.Handle | None = None
        self._beginning: set[asyncio.Future[None]] = set()
        self._has_served = False
        self._is_closed = False
        for listener in listeners:
            listener.setblocking(False)
            listener.listen(BACKLOG)
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Stop listening, and refuse those that wait. Idempotent."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener.fileno())
        self._is_closed = True
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._room.dismiss(_STOPPING)

    async def wait_closed(self) -> None:
        """Until nobody is handed over any more."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _accept(self, listener: socket.socket) -> None:
        n_refused, are_files_missing = self._room.accept(listener.fileno(), _ACCEPTING_NS)
        if n_refused:
            self._on_refused(n_refused)
            self._count_refused(n_refused)
        if are_files_missing:
            self._pause(listener)
        self._has_served = True
        self._serve()

    def _pause(self, listener: socket.socket) -> None:
        """Every file descriptor is in use: some clients have to leave first."""
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(_PAUSE_S, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0 and not self._is_closed:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _count_refused(self, n: int) -> None:
        if self._n_refused == 0:
            self._loop.call_later(_TELL_EVERY_S, self._tell_refused)
        self._n_refused += n

    def _tell_refused(self) -> None:
        _log.warning("connections refused: too many wait to be served", n=self._n_refused)
        self._n_refused = 0

    def _next(self) -> None:
        """Another turn has begun while some wait."""
        self._next_turn = None
        if self._has_served:  # in the turn before, after its accepting
            self._has_served = False
            self._next_turn = self._loop.call_soon(self._next)
        else:
            self._serve()

    def _serve(self) -> None:
        """Hand a few over, and more in the next turn: a turn of all of a crowd would take long."""
        for _ in range(min(self._pace.n_of_turn(), len(self._room))):
            self._hand_over(*self._room.take())
        if len(self._room) == 0:
            self._pace.rest()
        elif self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._next)

    def _hand_over(self, connection: int, first_bytes: bytes) -> None:
        """Begin at once what a task would begin a turn later."""
        beginning = self._begin(socket.socket(fileno=connection), first_bytes)
        with contextlib.suppress(StopIteration):
            made: asyncio.Future[None] = beginning.send(None)
            self._beginning.add(made)
            made.add_done_callback(partial(self._go_on_with, beginning))

    def _go_on_with(
        self, beginning: Coroutine[asyncio.Future[None], None, None], made: asyncio.Future[None]
    ) -> None:
        self._beginning.discard(made)
        with contextlib.suppress(StopIteration):
            beginning.send(None)

    async def _begin(self, connection: socket.socket, first_bytes: bytes) -> None:
        # What has come was read before: the loop would look for it only in its next turn.
        new_protocol = partial(self._new_protocol, first_bytes)
        try:
            await self._loop.connect_accepted_socket(new_protocol, connection)
        except Exception:
            _log.exception("a connection could not be served")
            connection.close()


def count_places() -> int:
    """How many may wait: what is served in tenths of a second, a tenth of the files at most."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_limited = n_files != resource.RLIM_INFINITY
    return max(1, min(_N_WAITING_MAX, n_files // 10)) if is_limited else _N_WAITING_MAX
