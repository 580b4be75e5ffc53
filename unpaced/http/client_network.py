"""Whom a connection is from, where no API key says it."""

import socket
from typing import Final

_MAPPED: Final = bytes(10) + b"\xff\xff"  # an IPv4 address written as one of IPv6


def network_of(client: tuple[str, int] | None) -> str:
    """ASGI's `client` as those who take turns: the IPv4 address, the first 64 bits of an IPv6
    address, which are one client's, or nothing (a Unix socket: whoever may open it).

    The same as in csrc/connections.
    """
    host = client[0] if client is not None else ""
    if ":" not in host:
        return host
    try:
        address = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:  # no address at all
        return host
    if address.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, address[12:])
    return address[:8].hex()
