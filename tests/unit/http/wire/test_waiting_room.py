"""Which of the connections that wait is served next, and which one is refused."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from unpaced.http.wire.waiting_room import WaitingRoom

Arrive = Callable[[bytes], tuple[socket.socket, socket.socket]]


@pytest.fixture
def arrive() -> Iterator[Arrive]:
    """Makes a connection whose client has sent this: the server's end, the client's end."""
    with ExitStack() as stack:

        def arrive(sent: bytes) -> tuple[socket.socket, socket.socket]:
            here, there = socket.socketpair()
            stack.enter_context(here)
            stack.enter_context(there)
            there.sendall(sent)
            return here, there

        yield arrive


def test_a_probe_comes_before_work_and_work_before_the_silent(arrive: Arrive) -> None:
    room = WaitingRoom(8)
    silent, work, probe = (arrive(sent)[0] for sent in (b"", b"POST /completion", b"GET /health"))
    for connection in (silent, work, probe):
        assert room.add(connection) is None
    assert [room.take(), room.take(), room.take()] == [probe, work, silent]
    assert len(room) == 0
    assert probe.recv(3) == b"GET"  # nothing is lost by the look


def test_work_has_every_fourth_turn(arrive: Arrive) -> None:
    room = WaitingRoom(8)
    probes = [arrive(b"GET /")[0] for _ in range(6)]
    work = [arrive(b"POST /")[0] for _ in range(2)]
    for connection in [*probes, *work]:
        room.add(connection)
    assert [room.take() for _ in range(8)] == [*probes[:3], work[0], *probes[3:], work[1]]


def test_who_speaks_meanwhile_is_looked_at_again(arrive: Arrive) -> None:
    room = WaitingRoom(8)
    silent, client = arrive(b"")
    work, _ = arrive(b"POST /")
    room.add(silent)
    room.add(work)
    client.sendall(b"GET /health/live HTTP/1.1\r\n")
    assert room.take() is silent


def test_the_newest_has_no_room_and_of_the_silent_the_oldest(arrive: Arrive) -> None:
    room = WaitingRoom(1)
    work = [arrive(b"POST /")[0] for _ in range(2)]
    silent = [arrive(b"")[0] for _ in range(2)]
    probe = arrive(b"GET /")[0]
    assert [room.add(c) for c in (*work, *silent, probe)] == [None, work[1], None, silent[0], None]
    assert room.take_all() == [probe, work[0], silent[1]]
    assert len(room) == 0


def test_who_has_been_reset_does_not_stand_in_the_way(arrive: Arrive) -> None:
    room = WaitingRoom(8)
    gone, client = arrive(b"")
    client.close()
    assert room.add(gone) is None
    assert room.take() is gone
