"""Which API key a request carries, compared in constant time."""

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256

_BEARER = b"Bearer "


class ApiKeys:
    """The keys the server was started with; without any, everybody has the index 0."""

    def __init__(self, keys: Sequence[str]) -> None:
        # Digests have one length, so that neither a key's length nor its beginning shows in time.
        self._digests = [sha256(key.encode()).digest() for key in keys]

    @property
    def are_asked_for(self) -> bool:
        """Whether there are any."""
        return bool(self._digests)

    def find(self, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
        """Index of the key that the headers carry; None if they carry none that is known.

        `Authorization: Bearer KEY` or `Authorization: KEY`; only without it `X-Api-Key: KEY`.
        """
        if not self._digests:
            return 0
        authorization = x_api_key = b""
        for name, value in headers:
            if name == b"authorization":
                authorization = authorization or value
            elif name == b"x-api-key":
                x_api_key = x_api_key or value
        # White space around a field's value is none of it, but the HTTP parser leaves what follows.
        carried = (authorization or x_api_key).strip(b" \t")
        digest = sha256(carried.removeprefix(_BEARER)).digest()
        found = None
        for index, known in enumerate(self._digests):
            if hmac.compare_digest(known, digest):
                found = index
        return found
