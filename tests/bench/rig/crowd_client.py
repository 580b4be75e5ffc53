"""Many streams at once from one thread: sockets in an epoll, a time stamp a read, frames counted
afterwards.

A thread a stream would have the client's own threads wait for one another on the cores that the
servers under test use, and would do so more the faster a server is.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.rig.sse_client import StreamTiming, completion_request, timing_of


class Crowd:
    """Streams that run at once. Begin them with `add`, then `read` until all are over."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._reads: dict[int, list[tuple[float, bytes]]] = {}
        self._sent: dict[int, float] = {}
        self._open: set[int] = set()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            self._selector.unregister(connection)
            connection.close()
        self._selector.close()

    @property
    def n_open(self) -> int:
        """Streams that are not over."""
        return len(self._open)

    def is_open(self, number: int) -> bool:
        """Whether a stream is not over."""
        return number in self._open

    def add(self, body: dict[str, Any]) -> int:
        """Connect, send a request for a stream; returns its number, from 0."""
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=600)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = len(self._sent)
        self._reads[number] = []
        request = completion_request(body)
        self._sent[number] = time.perf_counter()
        connection.sendall(request)
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, number)
        self._open.add(number)
        return number

    def read(self, timeout_s: float = 600) -> None:
        """Wait until something comes, and take it. Raises: RuntimeError if nothing does."""
        ready = self._selector.select(timeout_s)
        if not ready:
            raise RuntimeError(f"{len(self._open)} streams are silent")
        for key, _ in ready:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            chunk = connection.recv(1 << 20)
            if chunk:
                self._reads[key.data].append((time.perf_counter(), chunk))
                continue
            self._selector.unregister(connection)
            connection.close()
            self._open.remove(key.data)

    def n_reads(self, number: int) -> int:
        """How often something has come for a stream: 0 before its headers."""
        return len(self._reads[number])

    def sent_at(self, number: int) -> float:
        """When its request was sent, on `time.perf_counter`."""
        return self._sent[number]

    def timing(self, number: int) -> StreamTiming:
        """Of a stream that is over. Raises: RuntimeError for a status other than 200."""
        sent = self._sent[number]
        return timing_of([(at - sent, chunk) for at, chunk in self._reads[number]])


def stream_together(
    port: int, bodies: Sequence[dict[str, Any]]
) -> tuple[float, list[StreamTiming]]:
    """Send all requests at once and read every stream to its end.

    Returns the seconds from the first request to the last token, and each stream's timing, whose
    times count from its own request.
    """
    with Crowd(port) as crowd:
        numbers = [crowd.add(body) for body in bodies]
        while crowd.n_open:
            crowd.read()
        timings = [crowd.timing(number) for number in numbers]
        begin = crowd.sent_at(numbers[0])
        ends = [crowd.sent_at(n) + t.last_token_s for n, t in zip(numbers, timings, strict=True)]
    return max(ends) - begin, timings
