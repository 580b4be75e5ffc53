"""HTTP written by hand, for what no client library would send."""

import socket
from collections.abc import Callable

HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def connect(port: int, timeout_s: float = 20) -> socket.socket:
    """A connection to a server on the loopback that delays nothing."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes, by whichever means."""
    answer = b""
    try:
        while piece := connection.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    return answer


def send_until_refused(connection: socket.socket, make: Callable[[], bytes], n_max: int) -> int:
    """Bytes sent of `n_max` until the other side has closed the connection."""
    n_sent = 0
    try:
        while n_sent < n_max:
            piece = make()
            connection.sendall(piece)
            n_sent += len(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return n_sent
