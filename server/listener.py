"""The listening socket, made before the model is loaded."""

import socket


class ListenError(Exception):
    """The address cannot be listened on; the text says which and why."""


def open_listener(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Raises: ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        hint = " (--port chooses another)" if "in use" in reason else ""
        raise ListenError(f"cannot listen on {host}:{port}: {reason}{hint}") from None
    except OverflowError as error:
        listener.close()
        raise ListenError(f"cannot listen on {host}:{port}: {error}") from None
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL under which a client on this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
