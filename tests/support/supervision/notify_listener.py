"""A service manager for tests: the real socket of sd_notify's protocol, and what came to it."""

import socket
import time
from collections.abc import Callable
from pathlib import Path


class NotifyListener:
    """`address` is for NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Nobody listens any more."""
        self._socket.close()

    def read(self) -> list[dict[str, str]]:
        """All messages so far."""
        while True:
            try:
                text = self._socket.recv(65536).decode()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split("=", 1) for line in text.splitlines()))

    def values(self, name: str) -> list[str]:
        """Of each message that has this field."""
        return [message[name] for message in self.read() if name in message]

    def wait(self, condition: Callable[[], bool], limit_s: float = 30) -> None:
        """Raises: TimeoutError with what was said."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(str(self.messages))
            time.sleep(0.02)
