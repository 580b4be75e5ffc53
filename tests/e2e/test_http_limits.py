"""What a client may send outside a body: headers, trailers and chunk lines are counted together."""

import time
from collections.abc import Iterator

import pytest

from tests.support.bystander import Memory
from tests.support.raw_http import CHUNKED, CLOSE, HEAD, connect, read_all, send_until_refused
from tests.support.server import Server, serving

BODY = b'{"content": [7]}'
ONE_CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
MAX_HEADER_BYTES = 64 * 1024
SENT_MAX = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "1", "--body-timeout", "20", "--api-key", "good") as running:
        yield running


def exchange(server: Server, request: bytes) -> bytes:
    with connect(server.port) as connection:
        connection.sendall(request)
        return read_all(connection)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"0\r\n", b"X: a\r\n" * 1000),
        (b"0\r\nX: ", b"a" * 8192),
        (b"0\r\n", b"a" * 8192),
        (b"5;a=", b"b" * 8192),
        (ONE_CHUNK + b"0\r\n", b"X: a\r\n" * 1000),
    ],
    ids=["trailers", "a long trailer", "a long name", "a chunk's extension", "after a body"],
)
def test_what_surrounds_chunks_is_limited(server: Server, start: bytes, piece: bytes) -> None:
    memory = Memory(server.process.pid)
    key = b"Authorization: Bearer good\r\n"
    with connect(server.port) as connection:
        connection.sendall(HEAD + key + CHUNKED + start)
        n_sent = send_until_refused(connection, lambda: piece, SENT_MAX)
        answer = read_all(connection)
    assert n_sent < SENT_MAX
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert memory.grown_bytes() < 64 << 20


def test_without_a_key_too_and_for_any_route(server: Server) -> None:
    for path in (b"POST /health", b"GET /nowhere", b"POST /completion"):
        with connect(server.port) as connection:
            connection.sendall(path + b" HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"0\r\n")
            assert send_until_refused(connection, lambda: b"X: a\r\n" * 1000, SENT_MAX) < SENT_MAX


def test_a_few_trailers_are_read_and_forgotten(server: Server) -> None:
    key = b"Authorization: Bearer good\r\n"
    trailers = b"0\r\nX-Checksum: 1\r\nX-Request-Id: late\r\n\r\n"
    answer = exchange(server, HEAD + CLOSE + key + CHUNKED + ONE_CHUNK + trailers)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"late" not in answer


def test_a_key_in_a_trailer_is_none(server: Server) -> None:
    trailers = b"0\r\nAuthorization: Bearer good\r\nX-Api-Key: good\r\n\r\n"
    answer = exchange(server, HEAD + CLOSE + CHUNKED + ONE_CHUNK + trailers)
    assert answer.startswith(b"HTTP/1.1 401")


def test_many_small_chunks_are_no_headers(server: Server) -> None:
    body = b'{"content": "' + b"a" * 100_000 + b'"}'
    key = b"Authorization: Bearer good\r\n"
    pieces = [body[i : i + 7] for i in range(0, len(body), 7)]
    chunks = [b"%x;x=%b\r\n" % (len(piece), b"y" * 20) for piece in pieces]
    assert sum(map(len, chunks)) > 4 * MAX_HEADER_BYTES
    with connect(server.port) as connection:
        connection.sendall(HEAD + CLOSE + key + CHUNKED)
        for chunk, piece in zip(chunks, pieces, strict=True):
            connection.sendall(chunk)
            connection.sendall(piece + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_a_refusal_waits_for_the_answers_in_front_of_it(server: Server) -> None:
    key = b"Authorization: Bearer good\r\n"
    body = b'{"prompt": "a", "n_predict": 200, "ignore_eos": true, "stream": true}'
    head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    too_long = b"GET /health HTTP/1.1\r\nX: " + b"a" * 100_000
    for wrong, status in ((too_long, b"431"), (b"nonsense\r\n\r\n", b"400")):
        with connect(server.port) as connection:
            connection.sendall(head + key + b"\r\n" + body)
            assert connection.recv(12) == b"HTTP/1.1 200"
            connection.sendall(wrong)
            answer, _, refusal = read_all(connection).partition(b"0\r\n\r\n")
        assert b'"stop":true' in answer and b"HTTP/1.1" not in answer
        assert refusal.startswith(b"HTTP/1.1 " + status), refusal[:100]


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
@pytest.mark.parametrize("path", [b"/completion", b"/tokenize", b"/nowhere"])
def test_a_body_behind_none_is_refused_after_the_answer(
    server: Server, path: bytes, pause_s: float
) -> None:
    key = b"Authorization: Bearer good\r\n"
    with connect(server.port) as connection:
        connection.sendall(
            b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" + key
            + b"\r\n" + (BODY if pause_s == 0 else b"")
        )  # fmt: skip
        if pause_s > 0:
            time.sleep(pause_s)
            connection.sendall(BODY)
        answer = read_all(connection)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"404" if path == b"/nowhere" else b"400", b"400"], answer
    assert answer.endswith(b"Invalid HTTP request received.")


def test_what_is_pipelined_before_a_fault_is_answered(server: Server) -> None:
    key = b"Authorization: Bearer good\r\n"
    good = HEAD + key + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    bad_chunk = HEAD + key + CHUNKED + b"nonsense\r\n"
    for wrong in (b"nonsense\r\n\r\n", bad_chunk):
        answer = exchange(server, good + good + good + wrong)
        assert answer.count(b"HTTP/1.1 200") == answer.count(b'{"tokens":[7]}') == 3
        assert answer.count(b"HTTP/1.1 400") == 1
        assert answer.endswith(b"Invalid HTTP request received.")


@pytest.mark.parametrize("length", [b"0" * 5000 + b"16", b"9" * 5001, b"-1", b"1e3", b"1_0"])
def test_odd_content_lengths(server: Server, length: bytes) -> None:
    key = b"Authorization: Bearer good\r\n"
    answer = exchange(
        server, HEAD + CLOSE + key + b"Content-Length: " + length + b"\r\n\r\n" + BODY
    )
    assert answer.startswith(b"HTTP/1.1 200" if length.endswith(b"16") else b"HTTP/1.1 400")


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("framing", ["length", "chunks", "late"])
def test_an_upgrade_is_not_taken_up_and_nothing_is_lost(
    server: Server, upgrade: bytes, framing: str
) -> None:
    head = (
        HEAD + b"Authorization: Bearer good\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: " + upgrade + b"\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    )
    sized = b"Content-Length: %d\r\n\r\n" % len(BODY)
    parts = {
        "length": [head + sized + BODY],
        "chunks": [head + CHUNKED + ONE_CHUNK + b"0\r\nX: y\r\n\r\n"],
        "late": [head + sized, BODY[:4], BODY[4:]],
    }[framing]
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(server.port) as connection:
        for i, part in enumerate([*parts[:-1], parts[-1] + last]):
            time.sleep(0.05 if i else 0)
            connection.sendall(part)
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b'{"tokens":[7]}' in answer


def test_a_get_that_asks_for_an_upgrade(server: Server) -> None:
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
    both = b"Connection: Upgrade, close\r\n\r\n"
    answer = exchange(server, 2 * (ask + b"Connection: Upgrade\r\n\r\n") + ask + both)
    assert answer.count(b"HTTP/1.1 200") == 3


def test_a_body_that_nobody_waits_for_must_come_in_time() -> None:
    with (
        serving("-t", "1", "-np", "1", "--header-timeout", "0.5") as server,
        connect(server.port, timeout_s=0.2) as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED)
        started = time.monotonic()
        while time.monotonic() - started < 20:
            try:
                connection.sendall(b"1\r\na\r\n")
                if connection.recv(65536) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - started < 15
