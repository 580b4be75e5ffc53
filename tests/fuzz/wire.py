"""A plain HTTP/1.1 client that sends any bytes, and reads what comes."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.odd_requests import OddRequest

_LIMIT: Final = 64 * 2**20
_NOTHING: Final = frozenset({204, 304})


@dataclass(slots=True)
class Reply:
    """A response. Status 0: none came; `is_cut`: it was not waited for to the end; `is_broken`: the
    server ended it before its end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_cut: bool = False
    is_broken: bool = False


class Wire:
    """A connection that is kept as long as both sides know where a message ends."""

    def __init__(self, port: int, timeout_s: float, stall_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._stall_s = stall_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: OddRequest) -> Reply:
        """Send it and read the response, for so long. A request without an end is waited for
        shortly: the server may rightly wait for more of it. Raises: ConnectionRefusedError."""
        if self._writer is None or not request.is_framed:
            await self.close()
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, limit=_LIMIT
            )
        assert self._reader is not None
        reply = Reply()
        keeps = False
        try:
            async with asyncio.timeout(self._timeout_s if request.is_framed else self._stall_s):
                self._writer.write(request.to_bytes())
                keeps = await _read(self._reader, reply, is_head=request.method == "HEAD")
        except TimeoutError:
            reply.is_cut = True
        except (OSError, EOFError, ValueError):
            reply.is_broken = reply.status > 0
        if not keeps or not request.is_framed:
            await self.close()
        return reply

    async def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


async def _read(reader: asyncio.StreamReader, reply: Reply, *, is_head: bool) -> bool:
    """Fill the reply; True if the connection can be used again."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        reply.status = int(head[0].split(" ")[1])
        if reply.status >= 200:
            break
    pairs = (line.partition(":") for line in head[1:] if line)
    reply.headers = {name.lower(): value.strip() for name, _, value in pairs}
    keeps = reply.headers.get("connection", "") != "close"
    if is_head or reply.status in _NOTHING:
        return keeps
    if reply.headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
            reply.body = b"".join(parts) if len(parts) < 3 else reply.body
        await reader.readline()
        reply.body = b"".join(parts)
        return keeps
    if "content-length" in reply.headers:
        reply.body = await reader.readexactly(int(reply.headers["content-length"]))
        return keeps
    reply.body = await reader.read()
    return False
