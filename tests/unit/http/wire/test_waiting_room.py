"""Which of the connections that wait is served next, and which one is refused."""

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from engine_ext import WaitingRoom

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
A_SECOND_NS = 1_000_000_000
HERE = "127.0.0.1"
THERE = "127.0.0.2"  # on Linux all of 127.0.0.0/8 is this machine

Arrive = Callable[..., socket.socket]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HERE, 0), backlog=512) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def arrive(listener: socket.socket) -> Iterator[Arrive]:
    """Connects, from this address, and sends this: the client's end."""
    with ExitStack() as stack:

        def arrive(sent: bytes, *, from_address: str = HERE) -> socket.socket:
            client = socket.create_connection(
                listener.getsockname(), timeout=5, source_address=(from_address, 0)
            )
            stack.enter_context(client)
            client.sendall(sent)
            return client

        yield arrive


def fill(room: WaitingRoom, listener: socket.socket) -> int:
    """Accepts all; how many were refused."""
    n_refused, are_files_missing = room.accept(listener.fileno(), A_SECOND_NS)
    assert not are_files_missing
    return n_refused


def take_all(room: WaitingRoom) -> list[bytes]:
    """What they have sent, in the order in which they are served."""
    taken = []
    while len(room):
        fd, sent = room.take()
        with socket.socket(fileno=fd) as connection:
            assert not connection.get_inheritable()
        taken.append(sent)
    return taken


def test_a_probe_comes_before_work_and_work_before_the_silent(
    listener: socket.socket, arrive: Arrive
) -> None:
    room = WaitingRoom(8, REFUSAL)
    for sent in (b"", b"POST /completion", b"GET /health", b"HEAD /"):
        arrive(sent)
    assert fill(room, listener) == 0
    assert len(room) == 4
    assert take_all(room) == [b"GET /health", b"HEAD /", b"POST /completion", b""]
    with pytest.raises(IndexError):
        room.take()


def test_work_has_every_fourth_turn(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    probes = [b"GET /%d" % i for i in range(6)]
    work = [b"POST /%d" % i for i in range(2)]
    for sent in (*probes, *work):
        arrive(sent)
    fill(room, listener)
    assert take_all(room) == [*probes[:3], work[0], *probes[3:], work[1]]


@pytest.mark.parametrize("method", [b"GET ", b"POST "])
def test_addresses_have_turns(listener: socket.socket, arrive: Arrive, method: bytes) -> None:
    room = WaitingRoom(64, REFUSAL)
    crowd = [method + b"/%d" % i for i in range(20)]
    for sent in crowd:
        arrive(sent)
    arrive(method + b"/one", from_address=THERE)
    arrive(method + b"/two", from_address=THERE)
    fill(room, listener)
    assert take_all(room) == [
        *(crowd[0], method + b"/one", crowd[1], method + b"/two"),
        *crowd[2:],
    ]


def test_who_has_most_makes_room_for_another(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(4, REFUSAL)
    crowd = [arrive(b"POST /%d" % i) for i in range(6)]
    other = arrive(b"POST /other", from_address=THERE)
    assert fill(room, listener) == 3
    assert [client.recv(4096) for client in crowd[3:]] == [REFUSAL] * 3
    assert take_all(room) == [b"POST /0", b"POST /other", b"POST /1", b"POST /2"]
    assert other.recv(1) == b""  # closed above, but not refused


def test_the_newest_has_no_room_and_of_the_silent_the_oldest(
    listener: socket.socket, arrive: Arrive
) -> None:
    room = WaitingRoom(1, REFUSAL)
    work = [arrive(b"POST /%d" % i) for i in range(2)]
    silent = [arrive(b"") for _ in range(2)]
    arrive(b"GET /")
    assert fill(room, listener) == 2
    assert [work[1].recv(4096), silent[0].recv(4096)] == [REFUSAL, REFUSAL]
    assert take_all(room) == [b"GET /", b"POST /0", b""]


def test_who_speaks_meanwhile_is_looked_at_again(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    silent = arrive(b"")
    arrive(b"POST /")
    fill(room, listener)
    silent.sendall(b"GET /health/live HTTP/1.1\r\n")
    assert take_all(room) == [b"GET /health/live HTTP/1.1\r\n", b"POST /"]


def test_who_has_left_does_not_stand_in_the_way(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    arrive(b"").close()
    fill(room, listener)
    assert take_all(room) == [b""]


def test_of_a_burst_the_first_are_told_and_all_are_counted(
    listener: socket.socket, arrive: Arrive
) -> None:
    room = WaitingRoom(1, REFUSAL)
    refused = [arrive(b"POST /") for _ in range(71)][1:]
    assert fill(room, listener) == 70
    assert [client.recv(4096) for client in refused[:64]] == [REFUSAL] * 64
    for client in refused[64:]:
        with pytest.raises(ConnectionResetError):
            client.recv(4096)


def test_accepting_has_an_end_while_more_come(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    for _ in range(3):
        arrive(b"POST /")
    for n in (1, 2, 3):
        assert room.accept(listener.fileno(), 0) == (0, False)
        assert len(room) == n


def test_it_says_when_no_file_is_left(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    arrive(b"POST /")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        lowest = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        assert room.accept(listener.fileno(), A_SECOND_NS) == (0, True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fill(room, listener) == 0
    assert take_all(room) == [b"POST /"]


@pytest.mark.parametrize(
    ("host", "prefixes"),
    [("::1", ["::1"]), ("::", ["::1", "::ffff:127.0.0.1", "::ffff:127.0.0.2"])],
)
def test_ipv6_and_mapped_addresses_are_told_apart(host: str, prefixes: list[str]) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    room = WaitingRoom(64, REFUSAL)
    with socket.socket(socket.AF_INET6) as listening, ExitStack() as stack:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((host, 0))
        listening.listen(64)
        listening.setblocking(False)
        port = listening.getsockname()[1]
        for address in prefixes:
            for i in range(2):
                mapped = address.removeprefix("::ffff:")
                client = socket.create_connection(
                    ("127.0.0.1" if "." in mapped else "::1", port), source_address=(mapped, 0)
                )
                stack.enter_context(client)
                client.sendall(b"POST %s %d" % (address.encode(), i))
        fill(room, listening)
        assert take_all(room) == [
            b"POST %s %d" % (address.encode(), i) for i in range(2) for address in prefixes
        ]


def test_who_is_dismissed_gets_the_answer(listener: socket.socket, arrive: Arrive) -> None:
    room = WaitingRoom(8, REFUSAL)
    clients = [arrive(sent) for sent in (b"", b"POST /", b"GET /")]
    fill(room, listener)
    room.dismiss(b"the end")
    assert len(room) == 0
    assert [client.recv(4096) for client in clients] == [b"the end"] * 3


def test_a_room_that_is_dropped_closes_its_connections(
    listener: socket.socket, arrive: Arrive
) -> None:
    room = WaitingRoom(8, REFUSAL)
    client = arrive(b"")
    fill(room, listener)
    del room
    assert client.recv(1) == b""
