"""Streams of a real server to clients that read at once, late, slowly, or not at all any more."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.http.chunked_body import body_of
from tests.support.server import Server, serving

N_TOKENS = 700


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-np", "6", "-c", "8192") as running:
        yield running


def connect(server: Server, path: str, body: dict[str, Any], *, buffer: int = 0) -> socket.socket:
    """A connection on which the request has been sent."""
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    content = json.dumps(body | {"stream": True, "ignore_eos": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def read(connection: socket.socket, *, size: int = 65536, pause_s: float = 0) -> list[Any]:
    """The events of a whole answer, in which every chunk is whole."""
    received = b""
    with connection:
        while not received.endswith(b"\r\n0\r\n\r\n"):
            part = connection.recv(size)
            assert part, "the connection was closed within the answer"
            received += part
            if pause_s:
                time.sleep(pause_s)
    head, _, chunks = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    frames = body_of(chunks).split(b"\n\n")
    data = [frame.removeprefix(b"data: ") for frame in frames if frame]
    return [json.loads(event) for event in data if event != b"[DONE]"]


def check_completion(events: list[Any], n: int) -> None:
    """Each token has its event, once and in order."""
    *with_text, last = events
    if not with_text[-1]["tokens"]:  # which texts end within a character hangs on the processor
        assert with_text.pop()["content"] == "\ufffd"
    assert [event["tokens_predicted"] for event in [*with_text, last]] == [*range(1, n + 1), n]
    assert [event["stop"] for event in [*with_text, last]] == [False] * n + [True]


def complete(server: Server, seed: int, reads: str) -> None:
    """One completion of a client that reads in this way."""
    body: dict[str, Any] = {"prompt": f"Once {seed} upon", "n_predict": N_TOKENS, "seed": seed}
    if reads == "late":
        connection = connect(server, "/completion", body, buffer=4096)
        time.sleep(1.5)  # the server's buffers are full
        check_completion(read(connection), N_TOKENS)
    elif reads == "slowly":
        connection = connect(server, "/completion", body, buffer=4096)
        check_completion(read(connection, size=700, pause_s=0.001), N_TOKENS)
    elif reads == "no more":
        connection = connect(server, "/completion", body)
        connection.recv(2000)
        connection.close()
    else:
        check_completion(read(connect(server, "/completion", body)), N_TOKENS)


def test_streams_are_whole_however_their_clients_read(server: Server) -> None:
    ways = ["at once", "late", "slowly", "no more", "at once", "late"] * 3
    with ThreadPoolExecutor(len(ways)) as pool:
        for done in [pool.submit(complete, server, *pair) for pair in enumerate(ways)]:
            done.result()
    server.until(lambda: server.metric("llamacpp:requests_processing") == 0)


def test_a_client_that_is_late_gets_the_text_of_one_that_is_not() -> None:
    body = {"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": N_TOKENS}
    body |= {"seed": 5, "cache_prompt": False}

    def text(server: Server, *, is_late: bool) -> str:
        connection = connect(server, "/v1/chat/completions", body, buffer=4096 if is_late else 0)
        if is_late:
            time.sleep(1.5)
        deltas = [event["choices"][0]["delta"] for event in read(connection) if event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    with serving("-np", "1", "-t", "1", "-tb", "1") as server:  # the same bits each time
        at_once = text(server, is_late=False)
        assert len(at_once) > N_TOKENS
        assert text(server, is_late=True) == at_once


def test_a_kept_connection_is_used_again_behind_a_stream(server: Server) -> None:
    """What was written past it has left before the next answer."""
    for n in (3, 40, 3):
        connection = connect(server, "/completion", {"prompt": "A", "n_predict": n})
        again = connection.dup()
        check_completion(read(connection), n)
        again.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        with again:
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                part = again.recv(65536)
                assert part
                answer += part
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
