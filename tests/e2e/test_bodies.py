"""A request's body is read whole, however it arrives; what follows it is the next request's."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.server import Server, serving

HEAD = b"POST /tokenize HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "1", "--max-body-bytes", "10000") as running:
        yield running


def body_of(token: int) -> bytes:
    return json.dumps({"content": [token]}).encode()


def sized(body: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + b"Content-Length: %d\r\n\r\n" % len(body)


def chunked(*pieces: bytes) -> list[bytes]:
    return [b"%x\r\n" % len(piece) + piece + b"\r\n" for piece in pieces] + [b"0\r\n\r\n"]


def exchange(server: Server, *parts: bytes) -> bytes:
    """What comes back until the connection is closed. Each part is sent a little after the last."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i, part in enumerate(parts):
            time.sleep(0.05 if i else 0)
            connection.sendall(part)
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


BODY = body_of(7)
CHUNKED = HEAD + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [sized(BODY, CLOSE) + BODY],
        [sized(BODY, CLOSE), BODY],
        [sized(BODY, CLOSE) + BODY[:5], BODY[5:9], BODY[9:]],
        [CHUNKED + b"".join(chunked(BODY[:6], BODY[6:]))],
        [CHUNKED, *chunked(BODY[:6], BODY[6:])],
        [sized(b"\xef\xbb\xbf" + BODY, CLOSE) + b"\xef\xbb\xbf" + BODY],
    ],
    ids=["whole", "after the headers", "in pieces", "chunks at once", "chunks", "byte order mark"],
)
def test_a_body_arrives(server: Server, parts: list[bytes]) -> None:
    assert exchange(server, *parts).endswith(b'{"tokens":[7]}')


def test_a_client_that_waits_for_leave_to_send_gets_it(server: Server) -> None:
    head = sized(BODY, CLOSE + b"Expect: 100-continue\r\n")
    answer = exchange(server, head, BODY)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert answer.endswith(b'{"tokens":[7]}')


def test_pipelined_requests_have_their_own_bodies(server: Server) -> None:
    first, second, third = body_of(5), body_of(6), body_of(7)
    answer = exchange(
        server, sized(first) + first + sized(second) + second + sized(third, CLOSE) + third
    )
    assert answer.count(b"HTTP/1.1 200") == 3
    at = [answer.index(b'{"tokens":[%d]}' % token) for token in (5, 6, 7)]
    assert at == sorted(at)


@pytest.mark.parametrize("chunks", [False, True])
def test_a_body_over_the_limit_that_arrives_at_once_is_refused(
    server: Server, *, chunks: bool
) -> None:
    body = json.dumps({"content": "a" * 10_000}).encode()
    request = CHUNKED + b"".join(chunked(body)) if chunks else sized(body, CLOSE) + body
    assert exchange(server, request).startswith(b"HTTP/1.1 413")


def test_a_compressed_body_is_refused(server: Server) -> None:
    answer = exchange(server, sized(BODY, CLOSE + b"Content-Encoding: GZip\r\n") + BODY)
    assert answer.startswith(b"HTTP/1.1 415")
    assert b"'GZip' is not supported" in answer
