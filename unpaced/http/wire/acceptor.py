"""Accepts connections faster than requests can be served, and hands them over a few at a time.

uvloop's own server accepts one connection a turn of its loop, in which it serves everybody else.
So the last of 64 that connect at once waits while the others are served 64 times; and a flood waits
in the system's queue, which is first come, first served: a probe behind 2000 requests waits for all
of them.
"""

import asyncio
import contextlib
import errno
import resource
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

import orjson
import structlog

from unpaced.http.errors import JSON_TYPE, RETRY_AFTER_S, unavailable
from unpaced.http.wire.pace import Pace
from unpaced.http.wire.waiting_room import WaitingRoom

BACKLOG: Final = 4096
ACCEPTING_S: Final = 0.004  # in a row: who is handed over waits for it
_N_WAITING_MAX: Final = 1024
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_POLITE: Final = 64  # of a burst are told why they are refused, which takes as long as accepting
_N_FIRST: Final = 16384
_PAUSE_S: Final = 0.1
_TELL_EVERY_S: Final = 1.0
_READ: Final = bytearray(65536)  # what is read to be forgotten
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
    gets the bytes that have come already. `n_waiting_max`: of `WaitingRoom`. `on_refused` is called
    for each connection without room. Event loop's thread only. `clock`: seconds.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        new_protocol: Callable[[bytes], asyncio.Protocol],
        *,
        n_waiting_max: int,
        on_refused: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listeners = listeners
        self._clock = clock
        self._pace = Pace(clock)
        self._new_protocol = new_protocol
        self._on_refused = on_refused
        self._room = WaitingRoom(n_waiting_max)
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
        for connection in self._room.take_all():
            _answer(connection, _STOPPING)
            connection.close()

    async def wait_closed(self) -> None:
        """Until nobody is handed over any more."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _accept(self, listener: socket.socket) -> None:
        n_refused = 0
        ends = self._clock() + ACCEPTING_S
        try:
            while self._clock() < ends:
                superfluous = self._room.add(listener.accept()[0])
                if superfluous is not None:
                    n_refused += 1
                    self._refuse(superfluous, is_told=n_refused <= _POLITE)
        except OSError as error:  # mostly that nobody is left; others are of one connection
            if error.errno in _NO_DESCRIPTORS:
                self._pause(listener)
        finally:
            self._has_served = True
            self._serve()

    def _refuse(self, connection: socket.socket, *, is_told: bool) -> None:
        self._on_refused()
        self._count_refused()
        if is_told:
            _answer(connection, _CROWDED)
        connection.close()

    def _pause(self, listener: socket.socket) -> None:
        """Every file descriptor is in use: some clients have to leave first."""
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(_PAUSE_S, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0 and not self._is_closed:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _count_refused(self) -> None:
        if self._n_refused == 0:
            self._loop.call_later(_TELL_EVERY_S, self._tell_refused)
        self._n_refused += 1

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
            self._hand_over(self._room.take())
        if len(self._room) == 0:
            self._pace.rest()
        elif self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._next)

    def _hand_over(self, connection: socket.socket) -> None:
        """Begin at once what a task would begin a turn later."""
        beginning = self._begin(connection)
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

    async def _begin(self, connection: socket.socket) -> None:
        # What has come is read here: the loop would look for it only in its next turn.
        new_protocol = partial(self._new_protocol, _read_first(connection))
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


def _read_first(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_N_FIRST, socket.MSG_DONTWAIT)
    except OSError:  # nothing has come yet, or whoever reads next finds out
        return b""


def _answer(connection: socket.socket, answer: bytes) -> None:
    """What it has sent is read before: else its system drops the answer with the connection."""
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv_into(_READ)
        connection.send(answer)
