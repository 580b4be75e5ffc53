"""What a connection has made is freed when it ends, without the collector.

The collector stops the event loop: 25 to 40 ms each second of a flood of connections, when each of
them left a cycle behind.
"""

import asyncio
import gc
import socket
import weakref

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from unpaced.http.wire.acceptor import Acceptor
from unpaced.http.wire.connection import connection_of
from unpaced.http.wire.handed_over import HandedOverProtocol

ASKED = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
LEFT_UNFINISHED = ASKED.replace(b"Content-Length: 2", b"Content-Length: 3")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    connection = connection_of(scope)
    assert connection is not None
    if connection.take_body() is None:
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


async def serve(sent: bytes, n: int) -> list[weakref.ref[HandedOverProtocol]]:
    """The protocols of so many connections whose clients have sent this and left."""
    config = uvicorn.Config(application, http=HandedOverProtocol, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    made: list[weakref.ref[HandedOverProtocol]] = []

    def new_protocol(first_bytes: bytes) -> HandedOverProtocol:
        protocol = HandedOverProtocol(config, state, {})
        protocol.first_bytes = first_bytes
        made.append(weakref.ref(protocol))
        return protocol

    with socket.create_server(("127.0.0.1", 0)) as where:
        acceptor = Acceptor([where], new_protocol, n_waiting_max=64, on_refused=lambda _: None)
        for _ in range(n):
            reader, writer = await asyncio.open_connection(*where.getsockname())
            writer.write(sent)
            if sent == ASKED:
                assert b"served" in await reader.read(4096)
            writer.close()
        async with asyncio.timeout(10):
            while state.connections or state.tasks or len(made) < n:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        acceptor.close()
        await acceptor.wait_closed()
        await asyncio.sleep(0.01)  # until the last transport is closed
    return made


@pytest.mark.parametrize("sent", [ASKED, LEFT_UNFINISHED], ids=["answered", "left"])
def test_nothing_of_a_connection_waits_for_the_collector(sent: bytes) -> None:
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            made = runner.run(serve(sent, 8))
            assert [protocol() for protocol in made] == [None] * 8
    finally:
        gc.enable()
