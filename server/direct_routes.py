"""The way of a request to its endpoint that does not go through FastAPI's routing."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.errors import ApiError, handle_error

Endpoint = Callable[[Request], Awaitable[Response]]
_METHOD: Final = "POST"


class DirectRoutes:
    """ASGI: hands a POST to the endpoint of its path; everything else goes on to `app`.

    Matching routes one after the other, solving dependencies that no endpoint has and four layers
    of wrappers are 0.2 ms before a prompt is even read (docs/bench/prefix.md), with the processor's
    caches full of a model. It serves only what needs none of that: fixed paths, and endpoints whose
    one argument is the request. FastAPI has the same routes, for its OpenAPI document.
    """

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter], prefix: str) -> None:
        self._app = app
        self._routes = {
            prefix + route.path: route
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and _is_plain(route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope.get("path", ""))
        if route is None or scope["type"] != "http" or scope["method"] != _METHOD:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        endpoint: Endpoint = route.endpoint
        try:
            response = await endpoint(request)
        except (ApiError, HTTPException) as error:
            response = await handle_error(request, error)
        await response(scope, receive, send)


def _is_plain(route: APIRoute) -> bool:
    parameters = list(inspect.signature(route.endpoint).parameters.values())
    return (
        route.methods == {_METHOD}
        and "{" not in route.path
        and inspect.iscoroutinefunction(route.endpoint)
        and [parameter.annotation for parameter in parameters] == [Request]
    )
