"""What our protocol class offers a response beyond ASGI: the connection itself."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

_KEY: Final = "unpaced.connection"


def _no_socket() -> int:
    return -1


def _write(transport: asyncio.Transport, flow: FlowControl, data: bytes) -> bool:
    # As uvicorn's RequestResponseCycle.send does.
    if not transport.is_closing():
        transport.write(data)
    return not flow.write_paused


def _plain_socket(transport: asyncio.Transport) -> int:
    if is_ssl(transport) or transport.is_closing() or transport.get_write_buffer_size():
        return -1
    connection: socket.socket | None = transport.get_extra_info("socket")
    return -1 if connection is None else connection.fileno()


def as_chunk(data: bytes) -> bytes:
    """Make one chunk of a body in chunked coding; `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class Connection:
    """An ASGI extension, for the token path and for clients that did not read.

    `write`: send a chunk of a response body in chunked coding whose headers are out, now and
    without a coroutine; False if the client is behind, so that the next one must wait for ASGI's
    `send`.
    `take_body`: the request's whole body if it has come, as it mostly has, else None; what was
    taken does not come from `receive` any more.
    `was_cut_off`: whether the connection was dropped because the client did not read.
    `socket`: the descriptor for who writes past the transport; -1: something waits there to be
    sent, or the connection is no plain socket.
    """

    write: Callable[[bytes], bool]
    take_body: Callable[[], bytes | None]
    was_cut_off: Callable[[], bool]
    socket: Callable[[], int] = _no_socket

    @classmethod
    def over(
        cls,
        transport: asyncio.Transport,
        flow: FlowControl,
        take_body: Callable[[], bytes | None],
        was_cut_off: Callable[[], bool],
    ) -> Self:
        """The connection of this transport."""
        write = partial(_write, transport, flow)
        return cls(write, take_body, was_cut_off, partial(_plain_socket, transport))

    def to_extensions(self) -> dict[str, dict[object, object]]:
        """Make the scope's `extensions`."""
        return {_KEY: {"connection": self}}


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None under another server than ours."""
    connection = scope.get("extensions", {}).get(_KEY, {}).get("connection")
    return connection if isinstance(connection, Connection) else None


def take_body(cycle: RequestResponseCycle) -> bytes | None:
    """Take the body as `receive` would, without waiting; see `Connection`."""
    if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
        return None
    cycle.message_event.clear()
    body, cycle.body = bytes(cycle.body), bytearray()
    return body
