"""uvicorn's httptools protocol with limits: on headers, in bytes and in time, and on slow readers.

Without them a client can send headers for ever: httptools keeps all of them, and appending a long
one blocks the event loop (a header of 64 MiB was measured to block it for 5.6 s). What surrounds
the chunks of a body, their trailers above all, counts like headers.
"""

import asyncio
import socket
from typing import Any, Final

import httptools
import structlog
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl
from uvicorn.server import ServerState

from unpaced.http.wire.connection import Connection, take_body
from unpaced.http.wire.half_closed import HalfClosed
from unpaced.http.wire.header_deadlines import HeaderDeadlines
from unpaced.http.wire.refusal import refusal
from unpaced.http.wire.send_deadlines import SendDeadlines, unread_bytes

_BAD_REQUEST: Final = b"Invalid HTTP request received."
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PIPELINED_MAX: Final = 16
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_log: Final = structlog.stdlib.get_logger("unpaced")


class LimitedHttpProtocol(HttpToolsProtocol):
    """Answers 431 to headers over `max_header_bytes`, 408 to those that miss their deadline.

    A client that reads nothing of its answer is cut off. One that has closed its sending side gets
    its answer, unless it has left. An `Upgrade` is not taken up: the request is served as it is. A
    subclass for each server sets the limits.
    """

    max_header_bytes = 64 * 1024
    header_deadlines = HeaderDeadlines(10.0)
    send_deadlines = SendDeadlines(30.0)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._n_header_bytes = 0  # since the last byte of a body, or of the request before
        self._n_trailer_bytes = 0
        self._in_headers = True
        self._is_replaying = False
        self._has_refused = False
        self._last_words: bytes | None = None  # a refusal that waits for answers in front of it
        self._running: RequestResponseCycle | None = None  # `cycle` is the newest, not the oldest
        self._is_slow = False
        self._half_closed: HalfClosed | None = None

    # -- the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Not uvicorn's, which asks for the addresses of both ends, a dozen calls whose answers
        # nobody here needs. That it is a Unix socket somebody does.
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            self.server = ("unix", None)
        self.header_deadlines.begin(self, self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        # After an error uvicorn leaves it running, and it holds the request for 75 s.
        self._unset_keepalive_if_required()
        self.header_deadlines.end(self)
        self.send_deadlines.end(self)
        if self._half_closed is not None:
            self._half_closed.stop()
        super().connection_lost(exc)
        running = self._running  # uvicorn tells the newest request alone
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; True if it is owed an answer, which it may be waiting for."""
        if self._half_closed is not None:
            return True
        if self.scheme == "https":  # TLS has no half of a connection
            return False
        self._drop_unfinished()
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        if self._last_words is None:
            cycle.keep_alive = False
        self._half_closed = HalfClosed(
            self.transport.get_extra_info("socket"),
            self.loop,
            probe=self._probe,
            on_gone=self.transport.abort,
        )
        return True

    def _probe(self) -> bool:
        # The bytes of an answer do as well. HTTP/1.0 has no interim answers.
        running = self._running
        assert running is not None
        if running.response_started and not running.response_complete:
            return True
        if running.response_complete or running.scope["http_version"] == "1.0":
            return False
        self.transport.write(_CONTINUE)
        return True

    # -- what the client sends ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._has_refused:
            return
        self._unset_keepalive_if_required()
        if self._in_headers:
            self.header_deadlines.begin(self, self.loop)  # a further one on a kept connection
        self._n_header_bytes += len(data)
        self._feed(data)
        if max(self._n_header_bytes, self._n_trailer_bytes) > self.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._has_refused:
                self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning(_BAD_REQUEST.decode())
            self._refuse(b"400 Bad Request", _BAD_REQUEST)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read on in HTTP/1.1, as RFC 9110 (7.8) allows: httptools takes the request to end here.

        A new parser is told how the body is framed, and sees what follows the headers.
        """
        framing = [header for header in self.headers if header[0] in _FRAMING]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if framing:
            lines = b"".join(b"%b: %b\r\n" % header for header in framing)
            self._is_replaying = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + lines + b"\r\n")
            self._is_replaying = False
        else:
            self.on_message_complete()
        if rest:
            self._feed(rest)

    def on_message_begin(self) -> None:
        if self._is_replaying:
            return
        super().on_message_begin()
        self._in_headers = True

    def on_url(self, url: bytes) -> None:
        if not self._is_replaying:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:
            super().on_header(name, value)
            return
        # A trailer: whoever put it there was not who sent the headers, and nobody asks for one.
        self._n_trailer_bytes += len(name) + len(value)
        if self._n_trailer_bytes > self.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_headers_complete(self) -> None:
        if self._has_refused or self._is_replaying:
            return
        n_bytes = sum(len(name) + len(value) for name, value in self.headers) + len(self.url)
        self._n_header_bytes = self._n_trailer_bytes = 0
        self.header_deadlines.end(self)
        if n_bytes > self.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")
            return
        self._in_headers = False
        super().on_headers_complete()
        if 0 < len(self.pipeline) <= _PIPELINED_MAX:
            self.flow.resume_reading()  # or nobody sees that the client leaves
        connection = Connection.over(
            self.transport, self.flow, self._take_body, lambda: self._is_slow
        )
        self.scope["extensions"] = connection.to_extensions()  # its task has not run yet

    def on_body(self, body: bytes) -> None:
        self._n_header_bytes = 0
        if not self._has_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body comes
        self._n_header_bytes = 0
        self.header_deadlines.end(self)
        if not self._has_refused:
            super().on_message_complete()
        self._in_headers = True

    def on_deadline(self) -> None:
        """The headers have not come in time, or what is left of a request that was answered."""
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes, text: bytes = b"") -> None:
        """Answer what is at fault once all in front of it is answered (RFC 9112, 9.3.2); close."""
        if self._has_refused:
            return
        self._has_refused = True
        self.header_deadlines.end(self)
        is_late = self._has_begun_answer()
        if not self._in_headers and not self._drop_unfinished():
            self._close_with(b"" if is_late else refusal(status, text))
        elif self._is_owed():
            self._last_words = refusal(status, text)
        else:
            self._close_with(refusal(status, text))

    def _has_begun_answer(self) -> bool:
        """Whether what is at fault is being answered already, as an unread body is."""
        return not self._in_headers and self.cycle.response_started

    def _drop_unfinished(self) -> bool:
        """Forget the request that is being received, if its turn has not come; whether it had."""
        if not self.pipeline or not self.cycle.more_body:
            return False
        assert self._running is not None
        self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        return True

    def _is_owed(self) -> bool:
        """Whether a request that has come waits for its answer."""
        running = self._running
        return bool(self.pipeline) or (running is not None and not running.response_complete)

    def _close_with(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        if answer:
            self.transport.write(answer)
        self._watch_reader()
        self.transport.close()

    def _take_body(self) -> bytes | None:
        return None if self._running is None else take_body(self._running)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    # -- what the client reads ------------------------------------------------------------------

    def on_response_complete(self) -> None:
        if self.cycle.response_complete and self.cycle.more_body:
            self.header_deadlines.begin(self, self.loop)  # nobody else waits for the rest
        self._watch_reader()
        super().on_response_complete()
        if self._last_words is not None and not self._is_owed():
            self._close_with(self._last_words)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.send_deadlines.begin(self, self.loop)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.send_deadlines.end(self)

    def _watch_reader(self) -> None:
        # The end of an answer may be short of what pauses writing.
        if self.transport.get_write_buffer_size() > 0:
            self.send_deadlines.begin(self, self.loop)

    def unread_bytes(self) -> int:
        """For the send deadlines."""
        return unread_bytes(self.transport)

    def on_send_deadline(self) -> None:
        """The client has read nothing for too long: what it is owed is dropped."""
        self._is_slow = True
        _log.info("cut off a client that does not read", unread_bytes=self.unread_bytes())
        self.transport.abort()
