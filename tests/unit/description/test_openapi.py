"""GET /openapi.json says what is served, and FastAPI is loaded for nothing else."""

import re
from collections import Counter
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Route

from tests.support.openapi import Description
from tests.support.scripted.asgi_client import AsgiRequest, get
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.http.gate import Gate, Phase

pytestmark = pytest.mark.anyio
PAGES = ("/", "/index.html", "/page/{file}", "/openapi.json", "/docs")
KEY = {b"authorization": b"Bearer secret"}


def served(app: Starlette) -> set[tuple[str, str]]:
    return {
        (method.lower(), route.path_format)
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }


async def description(app: Starlette, path: str = "/openapi.json") -> Description:
    response = await get(app, path, authorization="Bearer secret").done()
    assert response.status == 200
    return Description(response.json)


async def ask(
    app: Starlette, method: str, path: str, body: bytes, headers: dict[bytes, bytes]
) -> AsgiRequest:
    target = re.sub(r"{\w+}", "0", path)
    return await AsgiRequest(app, method.upper(), target, body, list(headers.items())).done()


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_every_route_is_described(prefix: str) -> None:
    app = make_app(FakeEngine(), api_prefix=prefix)
    document = (await description(app, f"{prefix}/openapi.json")).document
    assert document["info"]["title"] == "Unpaced"
    paths = document["paths"]
    described = {(method, path) for path, methods in paths.items() for method in methods}
    assert described == {
        (method, path) for method, path in served(app) if path.removeprefix(prefix) not in PAGES
    }
    for path, methods in paths.items():
        for method in methods.values():
            in_path = [each["name"] for each in method.get("parameters", ()) if each["required"]]
            assert in_path == re.findall(r"{(\w+)}", path)


async def test_vertex_ais_routes_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/alive")
    paths = (await description(make_app(FakeEngine()))).document["paths"]
    assert {"/predict", "/alive"} <= set(paths)


async def test_schemas_are_schemas_and_every_reference_leads_to_one() -> None:
    document = (await description(make_app(FakeEngine()))).document
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    named = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert named <= set(schemas)
    assert set(schemas) - named <= {"Instances", "Predictions"}  # Vertex AI's
    identifiers = Counter(
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    )
    assert set(identifiers.values()) == {1}
    assert "x-later" not in str(document)


async def test_bodies_parameters_and_streams_are_described() -> None:
    described = await description(make_app(FakeEngine()))
    completion = described.document["paths"]["/v1/completions"]["post"]
    assert set(completion["responses"]) == {
        *("200", "400", "401", "403", "408", "413", "415", "500", "503"),
    }
    assert set(completion["responses"]["200"]["content"]) == {
        "application/json",
        "text/event-stream",
    }
    body = described.body_schema("post", "/v1/completions")
    assert body is not None
    assert {"prompt", "temperature", "seed", "max_tokens", "logprobs"} <= set(body["properties"])
    assert "legacy_logprobs" not in body["properties"]
    (slot, action) = described.document["paths"]["/slots/{slot}"]["post"]["parameters"]
    assert (slot["name"], slot["in"], slot["required"]) == ("slot", "path", True)
    assert (action["name"], action["in"], action["required"]) == ("action", "query", False)


@pytest.mark.parametrize(("keys", "n_ways"), [((), 3), (("secret",), 2)])
async def test_keys_are_described(keys: tuple[str, ...], n_ways: int) -> None:
    paths = (await description(make_app(FakeEngine(), api_key=keys))).document["paths"]
    assert len(paths["/v1/completions"]["post"]["security"]) == n_ways
    assert "security" not in paths["/health"]["get"]


async def test_what_is_said_of_hosts_keys_and_loading_is_so_for_every_route() -> None:
    app = make_app(FakeEngine(), api_key=("secret",), slot_save_path=".", props=True)
    local = make_app(FakeEngine())
    gate: Gate = app.state.gate
    described = await description(app)
    for method, path, operation in described.operations():
        gate.phase = Phase.READY
        foreign = await ask(local, method, path, b"{}", {b"host": b"evil.example"})
        assert (foreign.status == 403) == ("403" in operation["responses"]), path
        refused = await ask(app, method, path, b"{}", {})
        assert (refused.status == 401) == ("security" in operation), path
        gate.phase = Phase.LOADING
        loading = await ask(app, method, path, b"{}", KEY)
        assert (loading.status == 503) == ("503" in operation["responses"]), path
        for answer in (refused, loading, foreign):
            if answer.status != 200:
                kind = answer.headers.get("content-type", "")
                assert not described.answer_faults(method, path, answer.status, kind, answer.json)


FAULTS: list[tuple[bytes, dict[bytes, bytes], int]] = [
    (b"{", {}, 400),
    (b"[5]", {}, 400),
    (b"{}", {b"content-encoding": b"gzip"}, 415),
    (b"{}", {b"content-length": b"99999999999"}, 413),
]


@pytest.mark.parametrize(("body", "headers", "status"), FAULTS)
async def test_what_is_said_of_faulty_bodies_is_so_for_every_route(
    body: bytes, headers: dict[bytes, bytes], status: int, tmp_path: Any
) -> None:
    app = make_app(FakeEngine(), slot_save_path=tmp_path)
    described = await description(app)
    for method, path, operation in described.operations():
        if path == "/slots/{slot}":
            path += "?action=save"
        answer = await ask(app, method, path, body, headers)
        path = path.partition("?")[0]
        takes_any = path in ("/v1/streams/lookup", "/lora-adapters") and body == b"[5]"
        if "requestBody" in operation and not takes_any:
            assert answer.status == status, (path, answer.body)
        if answer.status >= 300:
            kind = answer.headers.get("content-type", "")
            faults = described.answer_faults(method, path, answer.status, kind, answer.json)
            assert not faults, path


async def test_head_is_answered_as_get_is() -> None:
    app = make_app(FakeEngine())
    request = await AsgiRequest(app, "HEAD", "/health", b"", []).done()
    assert request.status == 200
    assert (await AsgiRequest(app, "HEAD", "/completion", b"", []).done()).status == 404
