"""Answers clients while no server does: 503 and when to come again, or 200 for who asks whether the
process lives."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Final

BACKLOG: Final = 4096
_N_CLIENTS_MAX: Final = 512
_HEAD_BYTES_MAX: Final = 64 * 1024
_HEAD_S: Final = 5.0
_LAST_BYTES_S: Final = 1.0
_PAUSE_S: Final = 0.05
_RETRY_AFTER_S: Final = 1


def _answer(status: str, body: object) -> tuple[bytes, bytes]:
    text = json.dumps(body, separators=(",", ":")).encode()
    more = f"retry-after: {_RETRY_AFTER_S}\r\n" if status.startswith("503") else ""
    head = (
        f"HTTP/1.1 {status}\r\nconnection: close\r\n{more}server: unpaced\r\n"
        f"content-type: application/json; charset=utf-8\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return head.encode(), text


_ALIVE: Final = _answer("200 OK", {"status": "ok"})


class StandIn:
    """Accepts on the same sockets as a server, between `begin` and `end`. Event loop's thread.

    `live_path`: whoever asks for it with GET gets 200. `n_refused` counts the other answers.
    """

    def __init__(self, sockets: Sequence[socket.socket], live_path: str) -> None:
        self._sockets = sockets
        self._live = live_path.encode()
        self._is_on = False
        self._clients: set[asyncio.Task[None]] = set()
        self.n_refused = 0
        self.message = "the server is being started"
        """Why there is none."""

    def begin(self) -> None:
        """Answer from now on. Idempotent."""
        self._is_on = True
        for listener in self._sockets:
            listener.setblocking(False)
            asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    def end(self) -> None:
        """A server accepts again. Who was accepted before still gets an answer. Idempotent."""
        self._is_on = False
        for listener in self._sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())

    def answer_to(self, head: bytes) -> bytes:
        """The whole response to a request that begins in this way."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path == self._live and method in (b"GET", b"HEAD"):
            head_bytes, body = _ALIVE
        else:
            self.n_refused += 1
            error = {"code": 503, "message": self.message, "type": "unavailable_error"}
            head_bytes, body = _answer("503 Service Unavailable", {"error": error})
        return head_bytes if method == b"HEAD" else head_bytes + body

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if len(self._clients) >= _N_CLIENTS_MAX:
            self._pause(listener)
            return
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # a server was quicker, or the client has left
        except OSError:  # no descriptor is free
            self._pause(listener)
            return
        client.setblocking(False)
        serving = loop.create_task(_serve(client, self.answer_to))
        self._clients.add(serving)
        serving.add_done_callback(self._clients.discard)

    def _pause(self, listener: socket.socket) -> None:
        """Let others wait in the queue until some of those who were accepted have left."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        loop.call_later(_PAUSE_S, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if self._is_on:
            loop = asyncio.get_running_loop()
            loop.add_reader(listener.fileno(), self._accept, listener)


async def _serve(client: socket.socket, answer_to: Callable[[bytes], bytes]) -> None:
    """Answer one request, and close the connection."""
    loop = asyncio.get_running_loop()
    head = b""
    with client, contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_HEAD_S):
            while b"\r\n\r\n" not in head:
                data = await loop.sock_recv(client, 65536)
                if not data or len(head) > _HEAD_BYTES_MAX:
                    return
                head += data
            await loop.sock_sendall(client, answer_to(head))
        # Closed at once, its system would drop the answer if more of the request comes.
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LAST_BYTES_S):
            while await loop.sock_recv(client, 65536):
                pass
