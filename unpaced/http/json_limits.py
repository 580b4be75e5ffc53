"""A client's JSON, counted before it is decoded.

What it nests is walked by functions that recurse, and what it holds takes time on the event loop.
"""

from typing import Any, Protocol

import orjson

from engine_ext import json_shape
from unpaced.http.errors import invalid


class JsonLimits(Protocol):
    """What is asked of the settings."""

    @property
    def max_json_depth(self) -> int: ...
    @property
    def max_json_values(self) -> int: ...
    @property
    def max_json_numbers(self) -> int: ...


def decode_json(data: bytes, limits: JsonLimits, what: str = "the body") -> Any:
    """`data` decoded; `what` names it in errors. Raises: ApiError (400)."""
    # With fewer bytes than that it cannot be deeper or hold more.
    if len(data) > min(limits.max_json_depth, limits.max_json_values):
        _check(data, limits, what)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise invalid(f"{what} is not JSON: {error}") from None


def _check(data: bytes, limits: JsonLimits, what: str) -> None:
    depth, n_values, n_numbers = json_shape(data)
    if depth > limits.max_json_depth:
        raise invalid(
            f"{what} nests {depth} arrays and objects, "
            f"{limits.max_json_depth} are allowed (--max-json-depth)"
        )
    if n_values > limits.max_json_values:
        raise invalid(
            f"{what} holds {n_values} values that are no numbers, "
            f"{limits.max_json_values} are allowed (--max-json-values)"
        )
    if n_numbers > limits.max_json_numbers:
        raise invalid(
            f"{what} holds {n_numbers} numbers, "
            f"{limits.max_json_numbers} are allowed (--max-json-numbers)"
        )
