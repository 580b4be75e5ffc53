"""uvicorn's httptools protocol with limits on headers: in bytes and in time.

Without them a client can send headers for ever: httptools keeps all of them, and appending a long
one blocks the event loop (a header of 64 MiB was measured to block it for 5.6 s).
"""

import asyncio
from functools import partial
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl
from uvicorn.server import ServerState

from server.connection import Connection
from server.header_deadlines import HeaderDeadlines


class LimitedHttpProtocol(HttpToolsProtocol):
    """Answers 431 to headers over `max_header_bytes`, 408 to those that miss their deadline.

    A subclass for each server sets both.
    """

    max_header_bytes = 64 * 1024
    header_deadlines = HeaderDeadlines(10.0)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._n_header_bytes = 0
        self._in_headers = True
        self._has_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Not uvicorn's, which asks for the addresses of both ends, a dozen calls whose answers
        # nobody here needs.
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        self.header_deadlines.begin(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self.header_deadlines.end(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._has_refused:
            return
        if self._in_headers:
            self.header_deadlines.begin(self, self.loop)  # a further one on a kept connection
            self._n_header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._n_header_bytes > self.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True

    def on_headers_complete(self) -> None:
        n_bytes = sum(len(name) + len(value) for name, value in self.headers) + len(self.url)
        self._in_headers = False
        self._n_header_bytes = 0
        self.header_deadlines.end(self)
        if n_bytes > self.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")
            return
        super().on_headers_complete()
        take_body = partial(_take_body, self.cycle)
        connection = Connection(self._write, take_body, self.transport.abort)
        self.scope["extensions"] = connection.to_extensions()  # its task has not run yet

    def on_message_complete(self) -> None:
        if not self._has_refused:
            super().on_message_complete()
        self._in_headers = True

    def on_body(self, body: bytes) -> None:
        if not self._has_refused:
            super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if not self._has_refused:
            super().send_400_response(msg)

    def _write(self, data: bytes) -> bool:
        # As uvicorn's RequestResponseCycle.send does.
        if not self.transport.is_closing():
            self.transport.write(data)
        return not self.flow.write_paused

    def on_deadline(self) -> None:
        """The headers have not come in time."""
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self._has_refused = True
        self.header_deadlines.end(self)
        if not self.transport.is_closing():
            head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(head)
            self.transport.close()


def _take_body(cycle: RequestResponseCycle) -> bytes | None:
    # As its `receive` would, without waiting.
    if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
        return None
    cycle.message_event.clear()
    body, cycle.body = bytes(cycle.body), bytearray()
    return body
