"""Which names a browser may know this server by: against pages that rebind theirs to this machine.

A page of `evil.example` whose name suddenly means 127.0.0.1 is of the server's own origin, as far
as the browser can tell, and may read what it likes. Only the Host header says where it comes from.
"""

import socket
from collections.abc import Iterable
from typing import Final, Protocol

from unpaced.http.errors import ApiError

Header = tuple[bytes, bytes]

_UNIX_SUFFIX: Final = ".sock"
# Names that nobody can register: RFC 6761, and ICANN's of 2024, which Docker uses.
_RESERVED: Final = (".localhost", ".internal")


class HostSettings(Protocol):
    """What is asked of the settings."""

    @property
    def host(self) -> str: ...
    @property
    def allowed_hosts(self) -> str: ...


class HostPolicy:
    """Judges Host headers where the server listens on this machine alone and asks for no key.

    A name without a dot and an address are nobody's to rebind. Names that are given with
    --allowed-hosts are the only ones then, wherever the server listens.
    """

    def __init__(self, settings: HostSettings, *, has_keys: bool) -> None:
        bound = [host.strip() for host in settings.host.split(",") if host.strip()]
        allowed = [host.strip().lower() for host in settings.allowed_hosts.split(",")]
        names = [host for host in bound if not host.endswith(_UNIX_SUFFIX)]
        self._names = frozenset(filter(None, [*allowed, *(name.lower() for name in names)]))
        is_asked = bool(settings.allowed_hosts) and "*" not in allowed
        is_local = all(map(_is_loopback, names)) and not has_keys
        self.is_active = bool(names) and (is_asked or (is_local and "*" not in allowed))

    def refusal(self, headers: Iterable[Header]) -> ApiError | None:
        """403 if the Host header names somebody else; without one there is no browser."""
        host = next((value for name, value in headers if name == b"host"), b"")
        name = _name_of(host.decode("latin-1").lower())
        if "." not in name or name in self._names or name.endswith(_RESERVED):
            return None
        if _is_address(name):
            return None
        return ApiError(
            403,
            "permission_error",
            "the Host header is none of this server's names; --allowed-hosts adds some, * all",
        )


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False


def _is_loopback(name: str) -> bool:
    name = name.removeprefix("[").removesuffix("]")
    return name in ("localhost", "::1") or (name.startswith("127.") and _is_address(name))
