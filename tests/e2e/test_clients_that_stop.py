"""Clients that stop sending, or reading, before their answer is there."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.bystander import Memory
from tests.support.raw_http import connect, read_all
from tests.support.server import Server, serving

LONG: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 900}
BIG = "a b " * 400_000
RUNNING = "unpaced_requests_running"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "1", "-c", "1024") as running:
        yield running


def request_of(path: str, body: Any, version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def answer_to_half(server: Server, request: bytes, wait_s: float = 0.0) -> bytes:
    with connect(server.port) as connection:
        connection.sendall(request)
        time.sleep(wait_s)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def final(answer: bytes) -> bytes:
    """Without the interim answers in front of it."""
    while answer.startswith(b"HTTP/1.1 100"):
        _, _, answer = answer.partition(b"\r\n\r\n")
    return answer


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_a_client_that_sends_no_more_gets_its_answer(server: Server, wait_s: float) -> None:
    answer = answer_to_half(server, request_of("/tokenize", {"content": [7]}), wait_s)
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"tokens":[7]}')
    stream = answer_to_half(server, request_of("/completion", LONG | {"stream": True}), wait_s)
    assert final(stream).startswith(b"HTTP/1.1 200") and b'"stop":true' in stream
    whole = final(answer_to_half(server, request_of("/completion", LONG), wait_s))
    assert whole.startswith(b"HTTP/1.1 200")
    assert json.loads(whole.partition(b"\r\n\r\n")[2])["tokens_predicted"] == 900


def test_several_requests_at_once_are_all_answered(server: Server) -> None:
    one = request_of("/completion", LONG | {"n_predict": 20})
    answer = answer_to_half(server, one + one + request_of("/tokenize", {"content": [7]}))
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.endswith(b'{"tokens":[7]}')


def test_an_answer_that_takes_longer_than_a_look(server: Server) -> None:
    """While another has the slot: nothing can be sent, so that only a probe tells."""
    with connect(server.port) as other:
        other.sendall(request_of("/completion", LONG | {"n_predict": -1, "stream": True}))
        assert other.recv(12) == b"HTTP/1.1 200"
        with connect(server.port) as waiting:
            waiting.sendall(request_of("/completion", LONG | {"n_predict": 2}))
            waiting.shutdown(socket.SHUT_WR)
            answer = read_all(waiting)
    assert final(answer).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("abrupt", [False, True])
def test_a_client_that_has_left_frees_its_slot(
    server: Server, *, stream: bool, abrupt: bool
) -> None:
    endless = LONG | {"n_predict": -1, "n": 128, "stream": stream}
    connection = connect(server.port)
    connection.sendall(request_of("/v1/completions", endless | {"max_tokens": -1}))
    server.until(lambda: server.metric(RUNNING) == 1)
    if abrupt:
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()
    assert server.until(lambda: server.metric(RUNNING) == 0) < 20


def test_one_that_leaves_after_having_sent_all(server: Server) -> None:
    with connect(server.port) as connection:
        endless = LONG | {"n_predict": -1, "n": 128, "max_tokens": -1}
        connection.sendall(request_of("/v1/completions", endless))
        connection.shutdown(socket.SHUT_WR)
        server.until(lambda: server.metric(RUNNING) == 1)
        time.sleep(0.5)
        assert server.metric(RUNNING) == 1
    assert server.until(lambda: server.metric(RUNNING) == 0) < 20


@pytest.mark.parametrize("pause_s", [0.0, 0.3])
def test_one_that_leaves_with_requests_behind_the_one_that_runs(
    server: Server, pause_s: float
) -> None:
    endless = LONG | {"n_predict": -1, "n": 128, "max_tokens": -1}
    next_one = request_of("/tokenize", {"content": [7]})
    with connect(server.port) as connection:
        connection.sendall(request_of("/v1/completions", endless))
        time.sleep(pause_s)
        connection.sendall(next_one)
        server.until(lambda: server.metric(RUNNING) == 1)
    assert server.until(lambda: server.metric(RUNNING) == 0) < 20


def test_half_a_request_behind_a_whole_one(server: Server) -> None:
    whole = request_of("/completion", LONG | {"n_predict": 20})
    for rest in (whole[:30], whole[:-5]):
        answer = final(answer_to_half(server, whole + rest))
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b'"tokens_predicted":20' in answer


def test_an_old_client_is_not_waited_for_for_ever(server: Server) -> None:
    endless = LONG | {"n_predict": -1, "n": 128, "max_tokens": -1}
    answer = answer_to_half(server, request_of("/v1/completions", endless, version="1.0"))
    assert answer == b""
    assert server.until(lambda: server.metric(RUNNING) == 0) < 20
    short = answer_to_half(server, request_of("/tokenize", {"content": [7]}, version="1.0"))
    assert short.endswith(b'{"tokens":[7]}')


def test_a_unix_socket_too(socket_folder: Path) -> None:
    path = socket_folder / "s.sock"
    with serving("-t", "1", "-np", "1", "--host", f"127.0.0.1,{path}") as server:
        for leaves in (False, True):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(str(path))
                n = -1 if leaves else 300
                connection.sendall(request_of("/completion", LONG | {"n_predict": n, "n": 8}))
                connection.shutdown(socket.SHUT_WR)
                if leaves:
                    server.until(lambda: server.metric(RUNNING) == 1)
                    continue
                assert final(read_all(connection)).startswith(b"HTTP/1.1 200")
        assert server.until(lambda: server.metric(RUNNING) == 0) < 20


def has_cut_off(server: Server, n_clients: int) -> bool:
    return server.log.read_text().count("that does not read") == n_clients


def test_answers_that_nobody_reads_are_dropped() -> None:
    with serving("-t", "1", "-np", "1", "--timeout", "1") as server:
        memory = Memory(server.process.pid)
        for n_before, most in ((0, 96 << 20), (3, 64 << 20)):
            connections = [connect(server.port) for _ in range(3)]
            for connection in connections:
                connection.sendall(request_of("/tokenize", {"content": BIG, "with_pieces": True}))
            cut_off = n_before + len(connections)
            server.until(partial(has_cut_off, server, cut_off))
            for connection in connections:
                read_all(connection)
                connection.close()
            # Of the first ones too, but for what the allocator keeps of each thread's.
            assert memory.settled_bytes(at_most=most, timeout_s=30) <= most
            memory = Memory(server.process.pid)
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < 64


def test_a_slow_reader_is_not_cut_off() -> None:
    with serving("-t", "1", "-np", "1", "--timeout", "1") as server:
        with connect(server.port) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(request_of("/tokenize", {"content": BIG, "with_pieces": True}))
            n_bytes, started = 0, time.monotonic()
            while time.monotonic() - started < 4:
                n_bytes += len(connection.recv(32768))
                time.sleep(0.1)
            connection.shutdown(socket.SHUT_WR)
            n_bytes += len(read_all(connection))
        assert n_bytes > 10_000_000
        assert "that does not read" not in server.log.read_text()


def test_connections_that_were_reset_leave_nothing_behind(server: Server) -> None:
    """Each kept its request for the 75 s that an idle connection may be kept."""
    request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"

    def reset(n: int) -> None:
        for _ in range(n):
            with connect(server.port) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(request)
                connection.recv(12)

    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    server.complete("/v1/chat/completions", **chat)  # its modules are there
    reset(200)
    memory = Memory(server.process.pid)
    reset(2000)
    assert memory.settled_bytes(at_most=16 << 20, timeout_s=10) < 16 << 20
