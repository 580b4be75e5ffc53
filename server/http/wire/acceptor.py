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
from collections.abc import Callable, Sequence
from typing import Final

import orjson
import structlog

from server.http.errors import JSON_TYPE, RETRY_AFTER_S, unavailable
from server.http.wire.waiting_room import WaitingRoom

BACKLOG: Final = 4096
_BURST: Final = 256  # accepted in a row: milliseconds, and the system's queue is short after them
_N_WAITING_MAX: Final = 1024
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_POLITE: Final = 64  # of a burst are told why they are refused, which takes as long as accepting
_N_FEW: Final = 64
_N_OF_MANY: Final = 4
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

    It has what uvicorn asks of a server. `new_protocol` makes the protocol of a connection.
    `n_waiting_max`: of `WaitingRoom`. `on_refused` is called for each connection without room.
    Event loop's thread only.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        new_protocol: Callable[[], asyncio.Protocol],
        *,
        n_waiting_max: int,
        on_refused: Callable[[], None],
    ) -> None:
        self._listeners = listeners
        self._new_protocol = new_protocol
        self._on_refused = on_refused
        self._room = WaitingRoom(n_waiting_max)
        self._has_news = asyncio.Event()
        self._n_refused = 0
        self._loop = asyncio.get_running_loop()
        self._serving = self._loop.create_task(self._serve())
        for listener in listeners:
            listener.setblocking(False)
            listener.listen(BACKLOG)
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Stop listening, and refuse those that wait. Idempotent."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener.fileno())
        self._serving.cancel()
        for connection in self._room.take_all():
            _answer(connection, _STOPPING)
            connection.close()

    async def wait_closed(self) -> None:
        """Until nobody is handed over any more."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving

    def _accept(self, listener: socket.socket) -> None:
        n_refused = 0
        try:
            for _ in range(_BURST):
                superfluous = self._room.add(listener.accept()[0])
                if superfluous is not None:
                    n_refused += 1
                    self._refuse(superfluous, is_told=n_refused <= _POLITE)
        except OSError as error:  # mostly that nobody is left; others are of one connection
            if error.errno in _NO_DESCRIPTORS:
                self._pause(listener)
        finally:
            self._has_news.set()

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
        if listener.fileno() >= 0 and not self._serving.done():
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _count_refused(self) -> None:
        if self._n_refused == 0:
            self._loop.call_later(_TELL_EVERY_S, self._tell_refused)
        self._n_refused += 1

    def _tell_refused(self) -> None:
        _log.warning("connections refused: too many wait to be served", n=self._n_refused)
        self._n_refused = 0

    async def _serve(self) -> None:
        """All that wait in a turn of the loop; of a crowd a few, or a turn would take long."""
        while True:
            if len(self._room) == 0:
                self._has_news.clear()
                await self._has_news.wait()
            n_taken = len(self._room) if len(self._room) <= _N_FEW else _N_OF_MANY
            taken = [self._room.take() for _ in range(n_taken)]
            if n_taken == 1:  # without a task of its own
                await self._hand_over(taken[0])
            else:
                await asyncio.gather(*map(self._hand_over, taken))

    async def _hand_over(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except Exception:
            _log.exception("a connection could not be served")
            connection.close()


def count_places() -> int:
    """How many may wait: what is served in tenths of a second, a tenth of the files at most."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_limited = n_files != resource.RLIM_INFINITY
    return max(1, min(_N_WAITING_MAX, n_files // 10)) if is_limited else _N_WAITING_MAX


def _answer(connection: socket.socket, answer: bytes) -> None:
    """What it has sent is read before: else its system drops the answer with the connection."""
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv_into(_READ)
        connection.send(answer)
