"""Connections are accepted at once, served in turn, and refused where too many wait."""

import asyncio
import resource
import socket
from contextlib import ExitStack
from functools import partial
from typing import cast

import pytest

from unpaced.http.wire import acceptor
from unpaced.http.wire.acceptor import Acceptor, count_places
from unpaced.http.wire.pace import N_MAX


class Greeter(asyncio.Protocol):
    """Answers the first bytes and closes."""

    def __init__(self, first_bytes: bytes) -> None:
        self._first_bytes = first_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._first_bytes:
            self.data_received(self._first_bytes)

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"served")
        self._transport.close()


def remember(seen: list[bytes], first_bytes: bytes) -> Greeter:
    seen.append(first_bytes)
    return Greeter(first_bytes)


def listener() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    return sock


def clients(stack: ExitStack, where: socket.socket, n: int, sent: bytes) -> list[socket.socket]:
    connections = []
    for _ in range(n):
        connection = stack.enter_context(socket.create_connection(where.getsockname()))
        connection.sendall(sent)
        connections.append(connection)
    return connections


async def read_all(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    answer = b""
    while piece := await asyncio.get_running_loop().sock_recv(connection, 4096):
        answer += piece
    return answer


def test_those_without_room_get_a_503_and_are_counted() -> None:
    n_refused: list[int] = []

    async def run() -> list[bytes]:
        with listener() as where, ExitStack() as stack:
            asked = clients(stack, where, 12, b"POST / HTTP/1.1\r\n")
            server = Acceptor([where], Greeter, n_waiting_max=4, on_refused=n_refused.append)
            answers = [await read_all(connection) for connection in asked]
            server.close()
            await server.wait_closed()
            return answers

    answers = asyncio.run(run())
    assert answers[:4] == [b"served"] * 4
    assert all(a.startswith(b"HTTP/1.1 503 ") for a in answers[4:])
    assert all(b"retry-after: 1\r\n" in a and b"too many connections" in a for a in answers[4:])
    assert sum(n_refused) == 8


def test_a_turn_begins_what_has_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[bytes] = []
    monkeypatch.setattr(acceptor, "_ACCEPTING_NS", 0)  # one a turn

    async def run() -> list[int]:
        with listener() as where, ExitStack() as stack:
            clients(stack, where, 25, b"POST / HTTP/1.1\r\n")
            server = Acceptor(
                [where],
                partial(remember, first),
                n_waiting_max=64,
                on_refused=lambda _: None,
            )
            counts = []
            for _ in range(3):
                server._accept(where)
                counts.append(len(first))
            server.close()
            await server.wait_closed()
            return counts

    assert asyncio.run(run()) == [1, 2, 3]
    assert first == [b"POST / HTTP/1.1\r\n"] * 3


def test_a_probe_behind_a_crowd_begins_in_the_turn_that_accepts_it() -> None:
    first: list[bytes] = []

    async def run() -> None:
        with listener() as where, ExitStack() as stack:
            clients(stack, where, 40, b"POST / HTTP/1.1\r\n")
            clients(stack, where, 1, b"GET / HTTP/1.1\r\n")
            server = Acceptor(
                [where],
                partial(remember, first),
                n_waiting_max=64,
                on_refused=lambda _: None,
                clock=lambda: 0.0,
            )
            server._accept(where)
            server.close()
            await server.wait_closed()

    asyncio.run(run())
    assert len(first) == N_MAX
    assert first[0] == b"GET / HTTP/1.1\r\n"


def test_those_that_wait_at_its_end_are_told() -> None:
    async def run() -> list[bytes]:
        with listener() as where, ExitStack() as stack:
            asked = clients(stack, where, N_MAX + 3, b"POST / HTTP/1.1\r\n")
            server = Acceptor([where], Greeter, n_waiting_max=32, on_refused=lambda _: None)
            server._accept(where)
            server.close()
            server.close()
            return [await read_all(connection) for connection in asked]

    answers = asyncio.run(run())
    assert answers[:N_MAX] == [b"served"] * N_MAX
    assert all(b"the server is stopping" in answer for answer in answers[N_MAX:])


def test_a_connection_that_cannot_be_served_is_not_the_last() -> None:
    n_made = []

    def make(first_bytes: bytes) -> asyncio.Protocol:
        n_made.append(1)
        if len(n_made) == 1:
            raise ValueError
        return Greeter(first_bytes)

    async def run() -> list[bytes]:
        with listener() as where, ExitStack() as stack:
            asked = clients(stack, where, 2, b"GET / HTTP/1.1\r\n")
            server = Acceptor([where], make, n_waiting_max=4, on_refused=lambda _: None)
            answers = [await read_all(connection) for connection in asked]
            server.close()
            return answers

    assert asyncio.run(run()) == [b"", b"served"]


def test_it_goes_on_once_descriptors_are_free_again() -> None:
    async def run() -> bytes:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with listener() as where, ExitStack() as stack:
            (asked,) = clients(stack, where, 1, b"GET / HTTP/1.1\r\n")
            server = Acceptor([where], Greeter, n_waiting_max=4, on_refused=lambda _: None)
            with socket.socket() as probe:
                lowest = probe.fileno()
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                await asyncio.sleep(3 * acceptor._PAUSE_S)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            answer = await read_all(asked)
            server.close()
            return answer

    assert asyncio.run(run()) == b"served"


def test_few_files_are_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    assert count_places() == 20
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert count_places() == 1024
