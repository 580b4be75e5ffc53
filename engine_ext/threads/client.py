"""Whose work it is: what is shared is given to clients in turn."""

from contextvars import ContextVar
from typing import Final

client_key: Final = ContextVar("client_key", default=0)
"""Index of the API key of the request at hand."""

turn_taker: Final[ContextVar[int | str]] = ContextVar("turn_taker", default=0)
"""Who takes turns with the request at hand: the same index, or where there are no keys the client's
network."""
