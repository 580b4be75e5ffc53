"""Whose prompts a request may share cells and kept prompts with: those of one cache domain."""

import secrets
from hashlib import blake2b
from typing import Final

# Of this process alone: who chooses a salt cannot look for one that meets another's domain.
_SECRET: Final = secrets.token_bytes(32)
_OF_SALTS: Final = 1 << 63


def cache_domain(key: int, salt: str | None = None) -> int:
    """A number of 64 bits. With a salt the domain is the salt's, whoever sends it; else it is that
    of the API key with this index, and without keys everybody's."""
    if salt is None:
        return key
    digest = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8, key=_SECRET).digest()
    return int.from_bytes(digest, "big") | _OF_SALTS
