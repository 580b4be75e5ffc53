"""What pages of other origins may do (CORS), with llama-server's rules."""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from unpaced.http.exact_name import ExactName

Header = tuple[bytes, bytes]

_ALLOW_ORIGIN = ExactName(b"Access-Control-Allow-Origin")
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class CorsSettings(Protocol):
    """What is asked of the settings."""

    @property
    def allowed_origins(self) -> str: ...
    @property
    def cors_credentials(self) -> bool: ...
    @property
    def cors_methods(self) -> str: ...
    @property
    def cors_headers(self) -> str: ...


class CorsPolicy:
    """Headers for responses and preflights."""

    def __init__(self, settings: CorsSettings) -> None:
        self._origins = [o.strip().encode() for o in settings.allowed_origins.split(",")]
        self._echoes_all = settings.cors_credentials and self._origins == [b"*"]
        self._only_local = self._origins == [b"localhost"]
        credentials = b"true" if settings.cors_credentials else b"false"
        self._preflight: list[Header] = [
            (ExactName(b"Access-Control-Allow-Credentials"), credentials),
            (ExactName(b"Access-Control-Allow-Methods"), settings.cors_methods.encode()),
            (ExactName(b"Access-Control-Allow-Headers"), settings.cors_headers.encode()),
        ]

    def headers(self, request_headers: Iterable[Header], *, preflight: bool) -> list[Header]:
        """What every response to this request gets.

        An origin that is echoed makes the response vary by it, which caches must know.
        """
        more = self._preflight if preflight else []
        if len(self._origins) == 1 and not self._echoes_all and not self._only_local:
            return [(_ALLOW_ORIGIN, self._origins[0]), *more]
        vary = (b"vary", b"Origin")
        origin = next((value for name, value in request_headers if name == b"origin"), b"")
        if not origin or not self._allows(origin):
            return [vary, *more]
        return [(_ALLOW_ORIGIN, origin), vary, *more]

    def _allows(self, origin: bytes) -> bool:
        if self._only_local:
            return _is_local(origin)
        return self._echoes_all or origin in self._origins


def _is_local(origin: bytes) -> bool:
    """Is it a page of this machine: http(s)://localhost, 127.0.0.1 or [::1], any port."""
    try:
        url = urlsplit(origin.decode("ascii"))
        return url.scheme in ("http", "https") and url.hostname in _LOCAL_HOSTS
    except ValueError:
        return False
