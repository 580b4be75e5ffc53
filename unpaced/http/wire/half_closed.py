"""Clients that have closed their sending side: those that still read, and those that have left."""

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final

_FIRST_LOOK_S: Final = 0.1
_LAST_LOOK_S: Final = 1.0
_GONE: Final = select.POLLHUP | select.POLLERR


class HalfClosed:
    """Tells a client that waits for its answer from one that has left.

    The end of what it sends is the same for `nc -N`, which waits, and for a client that has closed
    its socket: what tells them apart is that the system of the latter refuses whatever is sent to
    it. So something is sent: what `probe` writes, as long as it may, or else the answer itself.
    `probe` returns False where it cannot; nobody knows then, and after a second without a byte of
    an answer, as with llama-server, the client is taken to have left. `on_gone` is called once.
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        *,
        probe: Callable[[], bool],
        on_gone: Callable[[], None],
    ) -> None:
        self._poll = select.poll()
        self._poll.register(connection.fileno(), 0)  # hang-ups and errors come unasked
        self._loop = loop
        self._probe = probe
        self._on_gone = on_gone
        self._delay_s = _FIRST_LOOK_S
        self._timer = loop.call_later(self._delay_s, self._look)

    def stop(self) -> None:
        """The connection is closed. Idempotent."""
        self._timer.cancel()

    def _look(self) -> None:
        is_gone = any(events & _GONE for _, events in self._poll.poll(0))
        is_unknown = not is_gone and not self._probe() and self._delay_s >= _LAST_LOOK_S
        if is_gone or is_unknown:
            self._on_gone()
            return
        self._timer = self._loop.call_later(self._delay_s, self._look)
        self._delay_s = min(_LAST_LOOK_S, 2 * self._delay_s)
