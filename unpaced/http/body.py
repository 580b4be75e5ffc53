"""Reading a request's body: bounded in size and time, then as JSON."""

import asyncio
from typing import Any, Final, Protocol

from starlette.requests import ClientDisconnect, Request

from unpaced.http.errors import ApiError, invalid
from unpaced.http.json_limits import JsonLimits, decode_json
from unpaced.http.wire.connection import connection_of
from unpaced.values.json_values import json_type

_BOM: Final = b"\xef\xbb\xbf"
# What llama-server's web server knows by name and cannot undo either.
_COMPRESSIONS: Final = frozenset({"gzip", "deflate", "br", "zstd"})


class BodyLimits(JsonLimits, Protocol):
    """What is asked of the settings."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def body_timeout(self) -> float: ...


async def read_json(request: Request) -> Any:
    """The body, decoded, within the application's `state.limits`.

    Raises: ApiError (400, 408, 413, 415).
    """
    limits: BodyLimits = request.app.state.limits
    encoding = length = b""
    for name, value in request.scope["headers"]:
        if name == b"content-length":
            length = length or value
        elif name == b"content-encoding":
            encoding = encoding or value
    if encoding and encoding.decode("latin-1").lower() in _COMPRESSIONS:
        raise ApiError(
            415,
            "invalid_request_error",
            f"Content-Encoding '{encoding.decode('latin-1')}' is not supported: "
            "send the body as it is",
        )
    # The HTTP parser has refused what 64 bits do not hold; zeros in front may be many.
    n_declared = int(length.lstrip(b"0") or 0) if length.isdigit() else 0
    data = await _read(request, n_declared, limits)
    return decode_json(data.removeprefix(_BOM), limits)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises: ApiError (400, 408, 413, 415)."""
    body = await read_json(request)
    if not isinstance(body, dict):
        raise invalid(f"the body must be a JSON object, but is {json_type(body)}")
    return body


async def _read(request: Request, n_declared: int, limits: BodyLimits) -> bytes:
    limit = limits.max_body_bytes
    if n_declared > limit:
        raise _too_large(limit)
    connection = connection_of(request.scope)
    whole = None if connection is None else connection.take_body()
    if whole is not None:
        if len(whole) > limit:
            raise _too_large(limit)
        return whole
    chunks: list[bytes] = []
    n_bytes = 0
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                if n_bytes > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise ApiError(
            408,
            "invalid_request_error",
            f"the body did not arrive within {limits.body_timeout:g} s",
            headers={"connection": "close"},
        ) from None
    except ClientDisconnect:
        raise ApiError(499, "invalid_request_error", "the client left") from None
    return b"".join(chunks)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        "invalid_request_error",
        f"the body is longer than {limit} bytes (--max-body-bytes)",
        headers={"connection": "close"},
    )
