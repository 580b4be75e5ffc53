"""How long clients may read nothing of what was sent to them: one timer for all of them."""

import asyncio
import fcntl
import socket
import struct
import termios
from dataclasses import dataclass
from typing import Protocol


class Sender(Protocol):
    """Who has sent what a client has yet to read."""

    def unread_bytes(self) -> int:
        """What the client has not taken yet; 0 as soon as the system holds all of it."""

    def on_send_deadline(self) -> None:
        """The client has read nothing for the whole time."""


def unread_bytes(transport: asyncio.Transport) -> int:
    """Count what is to be sent; where that is something, with what the system holds of it."""
    n_bytes = transport.get_write_buffer_size()
    connection: socket.socket | None = transport.get_extra_info("socket")
    if n_bytes == 0 or connection is None:
        return n_bytes
    queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return n_bytes + int(struct.unpack("i", queued)[0])


@dataclass(slots=True)
class _Progress:
    n_unread: int
    since: float


class SendDeadlines:
    """Watches those that are behind, whatever they are being sent; nothing is done for others.

    A client that reads a little has the whole time again.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._period_s = min(1.0, max(0.02, timeout_s / 4))
        self._behind: dict[Sender, _Progress] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, sender: Sender, loop: asyncio.AbstractEventLoop) -> None:
        """Its client is behind from now on, unless it was already."""
        if sender not in self._behind:
            self._behind[sender] = _Progress(sender.unread_bytes(), loop.time())
        if self._timer is None:
            self._timer = loop.call_later(self._period_s, self._look, loop)

    def end(self, sender: Sender) -> None:
        """Its client has caught up, or the connection is gone. Idempotent."""
        self._behind.pop(sender, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for sender, progress in list(self._behind.items()):
            n_unread = sender.unread_bytes()
            if n_unread == 0:
                self.end(sender)
            elif n_unread < progress.n_unread:
                progress.n_unread, progress.since = n_unread, now
            elif now - progress.since >= self._timeout_s:
                self.end(sender)
                sender.on_send_deadline()
        if self._behind:
            self._timer = loop.call_later(self._period_s, self._look, loop)
