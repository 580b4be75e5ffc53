"""Five ways to send the same server-sent events under uvicorn, for bench_sse.

Run as `python -m tests.bench.rig.sse_app PORT`. GET /WAY?n=N streams N events, each after one turn
of the event loop, as when the engine wakes the front end for every token.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import parse_qs

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from unpaced.http.event_stream import Pings, body_message, head_message, send_events
from unpaced.http.wire.connection import as_chunk, connection_of
from unpaced.http.wire.protocol import LimitedHttpProtocol

EVENT: Final = (
    b'data: {"choices":[{"text":" hello","index":0,"logprobs":null,"finish_reason":null}],'
    b'"created":1790000000,"model":"demo.gguf","system_fingerprint":"b1-0c1e570",'
    b'"object":"text_completion","id":"chatcmpl-01234567890123456789012345678901"}\n\n'
)


async def next_turn() -> None:
    """Wait for a future that the loop resolves in its next turn."""
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


async def events(n: int) -> AsyncIterator[bytes]:
    """`n` events."""
    for _ in range(n):
        await next_turn()
        yield EVENT


async def send_raw(send: Send, n: int) -> None:
    """ASGI messages without any library."""
    await send(head_message())
    async for event in events(n):
        await send(body_message(event))
    await send(body_message(b"", more=False))


async def send_from_callback(scope: Scope, pings: Pings, n: int) -> None:
    """As unpaced/completion/direct_stream.py: no task, no coroutine."""
    connection = connection_of(scope)
    assert connection is not None
    await pings.send(head_message())
    loop = asyncio.get_running_loop()
    n_left = n

    def step() -> None:
        nonlocal n_left
        pings.sent_at = time.monotonic()
        n_left -= 1
        if connection.write(as_chunk(EVENT)) and n_left:
            loop.call_soon(step)
        else:
            pause.set_result(None)

    while n_left:
        pause = loop.create_future()
        loop.call_soon(step)
        await pause
        await pings.send(body_message(b""))
    await pings.send(body_message(b"", more=False))


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The ways by path."""
    if scope["type"] != "http":
        return
    n = int(parse_qs(scope["query_string"].decode()).get("n", ["0"])[0])
    way = scope["path"].strip("/")
    pings = Pings(send, ping=b":\n\n", ping_s=30)
    if way == "token_path":
        await send_from_callback(scope, pings, n)
    elif way == "raw":
        await send_raw(pings.send, n)
    elif way == "streaming_response":
        await StreamingResponse(events(n))(scope, receive, send)
    elif way == "sse_starlette":  # as unpaced/completion/streaming.py for several choices
        await send_events(events(n), scope, pings.send)
    elif way == "sse_starlette_alone":  # with pings and a send timeout of its own
        await EventSourceResponse(events(n), sep="\n", send_timeout=30)(scope, receive, send)
    else:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(body_message(b"", more=False))
    pings.stop()


if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        loop="uvloop",
        http=LimitedHttpProtocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
    )
