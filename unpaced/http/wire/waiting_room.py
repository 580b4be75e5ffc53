"""Connections that the server has accepted and does not serve yet: which one is next."""

import socket
from collections import deque
from typing import Final

_PEEK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT
_QUICK: Final = (b"GET ", b"HEAD")
_N_METHOD: Final = 4
_N_LOOKS: Final = 16
_QUICK_IN_A_ROW: Final = 3


class WaitingRoom:
    """Those that ask for a page, a probe or metrics come before those that want work done.

    Work comes in the order of its arrival, and after three others at the latest. Those that have
    sent nothing yet need nothing yet: they come last. `n_max` may wait of each of the three.
    """

    def __init__(self, n_max: int) -> None:
        self._n_max = n_max
        self._quick: deque[socket.socket] = deque()
        self._work: deque[socket.socket] = deque()
        self._silent: deque[socket.socket] = deque()
        self._n_quick_in_a_row = 0

    def add(self, connection: socket.socket) -> socket.socket | None:
        """Returns the one that has no room: the new one, or who has said nothing for longest."""
        queue = self._queue_of(connection)
        if len(queue) < self._n_max:
            queue.append(connection)
            return None
        if queue is not self._silent:
            return connection
        queue.append(connection)
        return queue.popleft()

    def __len__(self) -> int:
        return len(self._quick) + len(self._work) + len(self._silent)

    def take(self) -> socket.socket:
        """The next one. Raises: IndexError if nobody waits."""
        self._look_at_silent()
        is_works_turn = self._n_quick_in_a_row >= _QUICK_IN_A_ROW
        queue = self._work if self._work and (is_works_turn or not self._quick) else self._quick
        self._n_quick_in_a_row = self._n_quick_in_a_row + 1 if queue is self._quick else 0
        return (queue or self._silent).popleft()

    def take_all(self) -> list[socket.socket]:
        """Everybody leaves."""
        everybody = [*self._quick, *self._work, *self._silent]
        for queue in (self._quick, self._work, self._silent):
            queue.clear()
        return everybody

    def _look_at_silent(self) -> None:
        """Whether some of them have spoken meanwhile: most do so at once."""
        for _ in range(min(_N_LOOKS, len(self._silent))):
            connection = self._silent.popleft()
            self._queue_of(connection).append(connection)

    def _queue_of(self, connection: socket.socket) -> deque[socket.socket]:
        try:
            start = connection.recv(_N_METHOD, _PEEK)
        except BlockingIOError:
            return self._silent
        except OSError:  # it has been reset, which whoever takes it finds out
            return self._work
        return self._quick if start in _QUICK else self._work
