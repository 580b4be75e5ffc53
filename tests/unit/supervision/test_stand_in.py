"""What a client gets while there is no server."""

import asyncio
import json
import socket

import pytest

from unpaced.supervision.stand_in import StandIn

BUSY = b"HTTP/1.1 503 Service Unavailable\r\n"


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def answers(*requests: bytes) -> list[tuple[bytes, bytes]]:
    async def run() -> list[tuple[bytes, bytes]]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stand_in = StandIn([listener], "/llm/health/live")
            stand_in.begin()
            port = listener.getsockname()[1]
            try:
                return [await ask(port, request) for request in requests]
            finally:
                stand_in.end()

    return asyncio.run(run())


def test_503_and_when_to_come_again() -> None:
    ((head, body),) = answers(b"POST /llm/completion HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    assert head.startswith(BUSY)
    lines = head.lower().split(b"\r\n")
    assert b"retry-after: 1" in lines
    assert b"connection: close" in lines
    assert f"content-length: {len(body)}".encode() in lines
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == (503, "unavailable_error")


@pytest.mark.parametrize(
    ("start", "is_alive"),
    [
        (b"GET /llm/health/live HTTP/1.1", True),
        (b"GET /llm/health/live?x=1 HTTP/1.0", True),
        (b"GET /health/live HTTP/1.1", False),
        (b"GET /llm/health/ready HTTP/1.1", False),
        (b"POST /llm/health/live HTTP/1.1", False),
        (b"nonsense", False),
    ],
)
def test_the_process_lives(start: bytes, is_alive: bool) -> None:
    ((head, _),) = answers(start + b"\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK" if is_alive else BUSY)


def test_head_has_no_body() -> None:
    ((head, body),) = answers(b"HEAD / HTTP/1.1\r\n\r\n")
    assert head.startswith(BUSY)
    assert body == b""


def test_a_head_without_end_gets_no_answer() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stand_in = StandIn([listener], "/health/live")
            stand_in.begin()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"x" * 70_000)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 10)
            writer.close()
            assert stand_in.n_refused == 0
            stand_in.end()

    asyncio.run(run())


def test_who_comes_after_its_end_waits_for_the_next_server() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stand_in = StandIn([listener], "/health/live")
            stand_in.begin()
            stand_in.end()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.2)
            writer.close()

    asyncio.run(run())


def test_nobody_who_was_accepted_is_forgotten() -> None:
    """However often servers come and go: who got no answer is still in the queue."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            stand_in = StandIn([listener], "/health/live")
            port = listener.getsockname()[1]
            asking = [asyncio.create_task(ask(port, b"GET / HTTP/1.1\r\n\r\n")) for _ in range(100)]
            while any(not each.done() for each in asking):
                stand_in.begin()
                await asyncio.sleep(0.0001)
                stand_in.end()
                await asyncio.sleep(0.0001)
            assert all(each.result()[0].startswith(BUSY) for each in asking)
            assert stand_in.n_refused == 100

    asyncio.run(run())
