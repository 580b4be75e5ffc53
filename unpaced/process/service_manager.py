"""Whoever has started this process and is told how it is: systemd, or our own supervisor.

The protocol is that of sd_notify(3): datagrams of `NAME=value` lines to the socket that
NOTIFY_SOCKET names. It is a dozen lines, which systemd's manual gives for programs to take over;
the packages that have it are not maintained any more (sdnotify), need libsystemd's headers to be
installed (systemd-python), or bring a copy of libsystemd (cysystemd).
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final, Self

_TIMEOUT_S: Final = 0.05  # a manager that stands still holds up nobody


class ServiceManager:
    """Gets `NAME=value` messages; nobody listens where no NOTIFY_SOCKET is set.

    `address`: as NOTIFY_SOCKET has it, a path or, after an @, an abstract name.
    `watchdog_s`: after how many seconds without WATCHDOG=1 the manager ends the process; 0: never.
    """

    def __init__(self, address: str | None, watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s
        self._address = address or ""
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._status = ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The manager that NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID name."""
        given = os.environ if environment is None else environment
        is_ours = given.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        microseconds = given.get("WATCHDOG_USEC", "")
        has_watchdog = is_ours and microseconds.isdecimal()
        return cls(given.get("NOTIFY_SOCKET"), int(microseconds) / 1e6 if has_watchdog else 0.0)

    def tell(self, **fields: object) -> None:
        """Send `NAME=value` for each, names in capitals; without waiting for an answer.

        A STATUS that is as it was is not sent again.
        """
        if not self._address:
            return
        texts = {name.upper(): str(value).replace("\n", " ") for name, value in fields.items()}
        if texts.get("STATUS") == self._status:
            del texts["STATUS"]
        self._status = texts.get("STATUS", self._status)
        if not texts:
            return
        message = "\n".join(f"{name}={text}" for name, text in texts.items())
        # A manager that is gone or does not read changes nothing for those who are served.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.settimeout(_TIMEOUT_S)
            sender.sendto(message.encode(), self._address)

    def beat(self) -> None:
        """Say that all is well, to a manager that wants to hear it."""
        if self.watchdog_s > 0:
            self.tell(watchdog=1)
