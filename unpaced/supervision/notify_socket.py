"""The socket on which a server tells its supervisor how it is: sd_notify(3)'s other end."""

import os
import secrets
import socket
import struct
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: process, user, group
_N_BYTES_MAX: Final = 4096
_N_AT_ONCE: Final = 64


class NotifySocket:
    """An abstract Unix socket, for which a read-only file system has room too.

    Anybody in the network namespace can write to it, so that the kernel's word counts for who did.
    """

    def __init__(self) -> None:
        name = f"unpaced/{os.getpid()}/{secrets.token_hex(8)}"
        self.address = f"@{name}"
        """As NOTIFY_SOCKET has it."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._socket.bind("\0" + name)

    def fileno(self) -> int:
        """For who waits for messages."""
        return self._socket.fileno()

    def close(self) -> None:
        """Nobody can write any more."""
        self._socket.close()

    def receive(self) -> list[tuple[int, dict[str, str]]]:
        """What has come: the sender's process and its fields. Some may be left for next time."""
        messages = []
        for _ in range(_N_AT_ONCE):
            try:
                text, extra, _, _ = self._socket.recvmsg(
                    _N_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except BlockingIOError:
                break
            messages.append((_sender(extra), _fields(text)))
        return messages


def _sender(extra: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
            return pid
    return 0


def _fields(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()
    return {name: value for name, found, value in (line.partition("=") for line in lines) if found}
