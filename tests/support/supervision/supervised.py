"""A real `unpaced serve --supervise` for tests, and the process that serves under it."""

import contextlib
import os
import socket
from collections.abc import Iterator

import httpx

from tests.support.server import Server, serving
from tests.support.supervision.child_processes import child_processes


def child_of(pid: int) -> int:
    """The process that serves. Raises: LookupError between two of them."""
    for child in child_processes(pid):
        return child
    raise LookupError(pid)


@contextlib.contextmanager
def supervised(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    """It is healthy; `Server.process` is the supervisor."""
    with serving("--supervise", "-np", "1", *arguments, env=env) as server:
        yield server


def is_healthy(server: Server) -> bool:
    """Whether a server answers that it is; False for whatever else comes of it."""
    try:
        return server.client.get("/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def wait_replaced(server: Server, old: int, limit_s: float = 60) -> float:
    """Seconds until another process than `old` is healthy. Raises: TimeoutError."""

    def is_replaced() -> bool:
        with contextlib.suppress(LookupError, OSError):
            return child_of(server.process.pid) != old and is_healthy(server)
        return False

    return server.until(is_replaced, limit_s)


def read_to_end(connection: socket.socket) -> bytes:
    """What comes until the connection ends, in whatever way."""
    text = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            text += data
    return text


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
