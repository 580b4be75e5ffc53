"""The way of a request to its endpoint that does not go through Starlette's routing."""

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from unpaced.http.errors import REFUSALS, handle_error
from unpaced.http.routing import Handler

_METHOD: Final = "POST"


class DirectRoutes:
    """ASGI: hands a POST to the endpoint of its path; everything else goes on to `app`.

    Matching routes one after the other and the layers of wrappers behind them take their time
    before a prompt is even read (docs/bench/prefix.md), with the processor's caches full of a
    model. It serves only what needs none of that: fixed paths.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route]) -> None:
        self._app = app
        self._routes = {
            route.path: route
            for route in routes
            if route.methods == {_METHOD} and "{" not in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope.get("path", ""))
        if route is None or scope["type"] != "http" or scope["method"] != _METHOD:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        handler: Handler = route.endpoint
        try:
            response = await handler(request)
        except REFUSALS as error:
            response = await handle_error(request, error)
        await response(scope, receive, send)
