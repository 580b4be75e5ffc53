"""GET /openapi.json says what is served, and FastAPI is loaded for nothing else."""

import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.unit.asgi_client import AsgiRequest, get
from tests.unit.fake_engine import FakeEngine
from tests.unit.server_app import make_app

pytestmark = pytest.mark.anyio


def served(app: Starlette) -> set[tuple[str, str]]:
    return {
        (method.lower(), route.path_format)
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_every_route_is_described(prefix: str) -> None:
    app = make_app(FakeEngine(), api_prefix=prefix)
    response = await get(app, f"{prefix}/openapi.json").done()
    assert response.status == 200
    assert response.json["info"]["title"] == "Unpaced"
    paths = response.json["paths"]
    described = {(method, path) for path, methods in paths.items() for method in methods}
    assert described == {
        (method, path)
        for method, path in served(app)
        if path.removeprefix(prefix) not in ("/", "/index.html", "/openapi.json")
    }
    for path, methods in paths.items():
        for method in methods.values():
            in_path = [each["name"] for each in method.get("parameters", ()) if each["required"]]
            assert in_path == re.findall(r"{(\w+)}", path)


async def test_bodies_parameters_and_errors_are_described() -> None:
    paths = (await get(make_app(FakeEngine()), "/openapi.json").done()).json["paths"]
    completion = paths["/v1/completions"]["post"]
    assert set(completion["responses"]) == {"200", "400", "413", "503"}
    body = completion["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "temperature", "seed"} <= set(body["properties"])
    (slot, action) = paths["/slots/{slot}"]["post"]["parameters"]
    assert (slot["name"], slot["in"], slot["required"]) == ("slot", "path", True)
    assert (action["name"], action["in"], action["required"]) == ("action", "query", False)


async def test_head_is_answered_as_get_is() -> None:
    app = make_app(FakeEngine())
    request = await AsgiRequest(app, "HEAD", "/health", b"", []).done()
    assert request.status == 200
    assert (await AsgiRequest(app, "HEAD", "/completion", b"", []).done()).status == 404
