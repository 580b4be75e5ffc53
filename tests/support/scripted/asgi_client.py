"""Calls an ASGI application without a socket, one message at a time, and can hang up."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.types import Message

from unpaced.http.wire.connection import Connection


class AsgiRequest:
    """One request in flight."""

    def __init__(
        self, app: Starlette, method: str, path: str, body: bytes | None, headers: Any
    ) -> None:
        self._app = app
        path, _, query = path.partition("?")
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        if body is not None:
            self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self._messages: list[Message] = []
        self._reads = asyncio.Event()
        self._reads.set()
        self._news = asyncio.Event()
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": None,
        }
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._app(self._scope, self._incoming.get, self._send)

    async def _send(self, message: Message) -> None:
        await self._reads.wait()
        self._messages.append(message)
        self._news.set()

    def connect(self, socket: int = -1, *, keeps_up: bool = False) -> None:
        """Serve it as our own protocol class does: chunks are written past ASGI, and where it has a
        socket the engine writes to it. `keeps_up`: what is written so goes out even where the
        client does not read. Call it first."""

        def write(chunk: bytes) -> bool:
            return self._write(chunk) or keeps_up

        connection = Connection(write, lambda: None, lambda: False, lambda: socket)
        self._scope["extensions"] = connection.to_extensions()

    def come_from(self, host: str) -> None:
        """The client has this address. Call it first."""
        self._scope["client"] = (host, 1)

    def _write(self, chunk: bytes) -> bool:
        head, _, data = chunk.partition(b"\r\n")
        assert chunk.endswith(b"\r\n") and len(data) == int(head, 16) + 2 > 2
        self._messages.append({"body": data[:-2]})
        self._news.set()
        return self._reads.is_set()

    def hang_up(self) -> None:
        """The client closes the connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    def stop_reading(self) -> None:
        """From now on nothing more is taken from the server."""
        self._reads.clear()

    def read_on(self) -> None:
        """The end of `stop_reading`."""
        self._reads.set()

    @property
    def status(self) -> int:
        """0 as long as no headers were sent."""
        return int(self._messages[0]["status"]) if self._messages else 0

    @property
    def headers(self) -> dict[str, str]:
        """Of the response; names in lower case."""
        return {k.decode().lower(): v.decode() for k, v in self._messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(message.get("body", b"") for message in self._messages[1:])

    @property
    def json(self) -> Any:
        """The body of a response that is over."""
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Server-sent events so far, decoded; [DONE] and comments are left out."""
        frames = self.body.decode().split("\n\n")
        data = [frame.removeprefix("data: ") for frame in frames if frame.startswith("data: ")]
        return [orjson.loads(frame) for frame in data if frame != "[DONE]"]

    async def until(self, condition: Callable[["AsgiRequest"], bool]) -> None:
        """Wait for a condition that new messages make true."""
        async with asyncio.timeout(5):
            while not condition(self):
                self._news.clear()
                await self._news.wait()

    async def done(self) -> "AsgiRequest":
        """Wait for the end of the response."""
        async with asyncio.timeout(10):
            await self.task
        return self


def post(app: Starlette, path: str, body: Any, **headers: str) -> AsgiRequest:
    """Start a POST with a JSON body (or raw bytes)."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    pairs = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    return AsgiRequest(app, "POST", path, data, pairs)


def get(app: Starlette, path: str, **headers: str) -> AsgiRequest:
    """Start a GET."""
    pairs = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    return AsgiRequest(app, "GET", path, b"", pairs)


async def turns(n: int = 5) -> None:
    """Let every task run a little."""
    for _ in range(n):
        await asyncio.sleep(0)
