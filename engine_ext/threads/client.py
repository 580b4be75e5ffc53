"""Whose work it is: what is shared is given to clients in turn."""

from contextvars import ContextVar
from typing import Final

client_key: Final = ContextVar("client_key", default=0)
"""Index of the API key of the request at hand."""
