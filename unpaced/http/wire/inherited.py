"""Listening sockets that whoever started this process has opened: sd_listen_fds(3)'s protocol."""

import os
import socket
import stat
from collections.abc import MutableMapping
from typing import Final

from unpaced.http.wire.listener import ListenError, Listeners

FIRST: Final = 3
"""The first descriptor that is handed over."""


def inherited_listeners(environment: MutableMapping[str, str] | None = None) -> Listeners | None:
    """The sockets that LISTEN_FDS and LISTEN_PID name; None: there are none for this process.

    The variables are taken away, so that no process that is started later takes them for its own.
    Files of Unix sockets are left to who made them. Raises: ListenError for anything that is not
    a listening stream socket.
    """
    given = os.environ if environment is None else environment
    pid, n_texts = given.pop("LISTEN_PID", ""), given.pop("LISTEN_FDS", "")
    given.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not n_texts.isdecimal() or n_texts == "0":
        return None
    listeners = Listeners()
    for number in range(FIRST, FIRST + int(n_texts)):
        listeners.sockets.append(_listener_of(number))
    return listeners


def _listener_of(number: int) -> socket.socket:
    wrong = ListenError(f"LISTEN_FDS: descriptor {number} is not a listening stream socket")
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            raise wrong
        os.set_inheritable(number, False)
        listener = socket.socket(fileno=number)
    except OSError:
        raise wrong from None
    is_stream = listener.type == socket.SOCK_STREAM
    is_known = listener.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if not is_stream or not is_known or not _is_listening(listener):
        raise wrong
    return listener


def _is_listening(listener: socket.socket) -> bool:
    return listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
