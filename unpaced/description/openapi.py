"""GET /openapi.json: what the routes take and answer, put together the first time."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine_ext import read_build_info
from unpaced.http.errors import JSON_TYPE
from unpaced.http.routing import Routes


def openapi_route(groups: Sequence[Routes], prefix: str, *, has_keys: bool) -> Route:
    """The route that describes `groups`, which are served under `prefix`."""
    described: asyncio.Future[bytes] | None = None

    async def openapi(_: Request) -> Response:
        nonlocal described
        if described is None:  # its imports take a tenth of a second: not on the event loop
            making = asyncio.to_thread(_describe, groups, prefix, has_keys=has_keys)
            described = asyncio.ensure_future(making)
        return Response(await asyncio.shield(described), media_type=JSON_TYPE)

    return Route(f"{prefix}/openapi.json", openapi)


def _describe(groups: Sequence[Routes], prefix: str, *, has_keys: bool) -> bytes:
    from unpaced.description.document import document

    return document(groups, prefix, version=read_build_info().version, has_keys=has_keys)
