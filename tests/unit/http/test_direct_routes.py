"""POSTs that do not go through Starlette's routing are answered as those that do."""

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from tests.support.scripted.asgi_client import AsgiRequest
from unpaced.http.direct_routes import DirectRoutes
from unpaced.http.errors import ApiError, handle_error, invalid_field
from unpaced.http.routing import Routes

pytestmark = pytest.mark.anyio

routes = Routes("test")


@routes.post("/echo")
async def echo(request: Request) -> Response:
    """What is direct: a fixed path, and the request as its one argument."""
    route = request.scope["route"]
    return Response(
        await request.body(), headers={"x-route": route.path, "x-app": request.app.state.title}
    )


@routes.post("/refuse")
async def refuse(request: Request) -> Response:
    """An error that the client is told of."""
    del request
    raise invalid_field("prompt", "is too blue")


@routes.get("/read")
async def read(request: Request) -> Response:
    """Not a POST."""
    return Response(request.method)


@routes.post("/things/{thing}")
async def change(request: Request) -> Response:
    """Not a fixed path."""
    return Response(request.path_params["thing"])


def make_app(*, direct: bool) -> Starlette:
    served = routes.served("/v9")
    app = Starlette(
        routes=served,
        exception_handlers={ApiError: handle_error},
        middleware=[Middleware(DirectRoutes, routes=served)] if direct else [],
    )
    app.state.title = "Test"
    return app


async def ask(app: Starlette, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    request = AsgiRequest(app, method, path, b"{}", [])
    await request.task
    return request.status, request.headers, request.body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v9/echo"),
        ("POST", "/v9/refuse"),
        ("GET", "/v9/echo"),
        ("GET", "/v9/read"),
        ("POST", "/v9/read"),
        ("POST", "/v9/things/lamp"),
        ("POST", "/echo"),
        ("POST", "/v9/nothing"),
    ],
)
async def test_it_answers_as_starlettes_routing_does(method: str, path: str) -> None:
    assert await ask(make_app(direct=True), method, path) == await ask(
        make_app(direct=False), method, path
    )


async def test_only_plain_posts_are_direct() -> None:
    passed_on: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        passed_on.append((scope["method"], scope["path"]))

    direct = DirectRoutes(app, routes.served("/v9"))
    for method, path in (("GET", "/v9/read"), ("POST", "/v9/things/lamp")):
        await direct({"type": "http", "method": method, "path": path}, None, None)  # type: ignore[arg-type]
    await direct({"type": "lifespan", "method": "", "path": ""}, None, None)  # type: ignore[arg-type]
    assert passed_on == [
        ("GET", "/v9/read"),
        ("POST", "/v9/things/lamp"),
        ("", ""),
    ]
    status, headers, body = await ask(make_app(direct=True), "POST", "/v9/refuse")
    assert status == 400
    assert json.loads(body)["error"]["param"] == "prompt"
    assert headers["content-type"].startswith("application/json")
