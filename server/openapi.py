"""GET /openapi.json: the routes in OpenAPI's words, put together by FastAPI the first time."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine_ext.build_info import read_build_info
from server.errors import JSON_TYPE
from server.routing import Endpoint, Routes


def openapi_route(groups: Sequence[Routes], prefix: str) -> Route:
    """The route that describes `groups`, which are served under `prefix`."""
    described: asyncio.Future[bytes] | None = None

    async def openapi(_: Request) -> Response:
        nonlocal described
        if described is None:  # its import takes a tenth of a second: not on the event loop
            described = asyncio.ensure_future(asyncio.to_thread(_describe, groups, prefix))
        return Response(await asyncio.shield(described), media_type=JSON_TYPE)

    return Route(f"{prefix}/openapi.json", openapi)


def _describe(groups: Sequence[Routes], prefix: str) -> bytes:
    from fastapi import FastAPI

    app = FastAPI(title="Unpaced", version=read_build_info().version)
    for group in groups:
        for endpoint in group.endpoints:
            app.add_api_route(
                prefix + endpoint.path,
                endpoint.handler,
                methods=[endpoint.method],
                tags=[group.tag],
                responses={
                    status: {"description": when} for status, when in endpoint.errors.items()
                },
                openapi_extra=_extra(endpoint),
            )
    return orjson.dumps(app.openapi())


def _extra(endpoint: Endpoint) -> dict[str, Any]:
    """What FastAPI cannot read from a handler that takes the request as it is."""
    in_path = [(name, "path") for name in re.findall(r"{(\w+)(?::\w+)?}", endpoint.path)]
    in_query = [(name, "query") for name in endpoint.query]
    extra: dict[str, Any] = {}
    if in_path or in_query:
        extra["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for name, place in in_path + in_query
        ]
    if endpoint.body is not None:
        schema = endpoint.body.model_json_schema()
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return extra
