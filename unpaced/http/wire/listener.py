"""The listening sockets, made before the model is loaded."""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final, Self

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_UNIX_SUFFIX: Final = ".sock"


class ListenError(Exception):
    """An address cannot be listened on; the text says which and why."""


class Listeners:
    """Bound sockets; leaving the context closes them and removes the files of Unix sockets."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self._paths: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close them and remove the files of Unix sockets. Idempotent."""
        # Whoever serves may have closed the sockets before.
        for listener in self.sockets:
            listener.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def add_unix(self, path: str) -> None:
        """Listen on a Unix socket. Raises: ListenError."""
        self.sockets.append(_open_unix(path))
        self._paths.append(path)

    def urls(self, *, scheme: str, prefix: str) -> list[str]:
        """Where clients on this machine reach the server; HTTP's URLs first.

        For a Unix socket `unix:` and its path: HTTP has no URL for it.
        """
        tcp = [s for s in self.sockets if s.family != socket.AF_UNIX]
        urls = [_url_of(listener, scheme) + prefix for listener in tcp]
        unix = [s for s in self.sockets if s.family == socket.AF_UNIX]
        return [*urls, *(f"unix:{_path_of(listener)}" for listener in unix)]


def open_listeners(hosts: str, port: int, *, reuse_port: bool = False) -> Listeners:
    """One bound socket for each of the comma-separated `hosts`.

    A host that ends in .sock is the path of a Unix socket; others are names or addresses, IPv6
    ones with or without brackets. Port 0 takes a free one, the same for all. With several
    addresses `::` means IPv6 alone, as in llama-server.
    Raises: ListenError; nothing stays bound then.
    """
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    if not names:
        raise ListenError("cannot listen on no address (--host names some)")
    with contextlib.ExitStack() as undo:
        listeners = undo.enter_context(Listeners())
        for name in names:
            if name.endswith(_UNIX_SUFFIX):
                listeners.add_unix(name)
                continue
            listener = _open_tcp(name, port, reuse_port=reuse_port, v6_only=len(names) > 1)
            listeners.sockets.append(listener)
            port = listener.getsockname()[1]
        undo.pop_all()
        return listeners


def _open_tcp(host: str, port: int, *, reuse_port: bool, v6_only: bool) -> socket.socket:
    host = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {host}:{port}: {_reason(error)}") from None
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6_only))
        listener.bind(address)
    except OSError as error:
        listener.close()
        hint = " (--port chooses another)" if "in use" in _reason(error) else ""
        raise ListenError(f"cannot listen on {host}:{port}: {_reason(error)}{hint}") from None
    return listener


def _open_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise ListenError(f"cannot listen on {path}: {_reason(error)}") from None
    return listener


def _remove_stale(path: str) -> None:
    """Remove a socket that a killed server left behind. Raises: OSError if one still listens."""
    if not Path(path).exists() or not stat.S_ISSOCK(os.stat(path).st_mode):
        return  # bind says what is wrong with another kind of file
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError("a server listens there already")


def _reason(error: OSError | UnicodeError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _url_of(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    host = _ANY.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _path_of(listener: socket.socket) -> str:
    path = listener.getsockname()
    return path if isinstance(path, str) else "@" + path[1:].decode(errors="replace")
