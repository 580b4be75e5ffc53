"""The schemas of bodies are what the code checks: what they refuse is refused, field by field."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette

from tests.fuzz.good_bodies import GOOD_BODIES, kind_of
from tests.support.openapi import Description
from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.schemas.completion import CompletionBody

pytestmark = pytest.mark.anyio

PATHS: Final = (
    *("/completion", "/v1/completions", "/infill", "/v1/chat/completions", "/v1/responses"),
    *("/v1/messages", "/tokenize", "/detokenize", "/v1/chat/completions/control"),
)
ODD: Final[list[Any]] = ["x", 1.5, -7, True, [], [[]], {}, {"a": 1}, [5], ["x"], 2**40, None]
# Taken as if they were absent, which is not worth a word in a schema.
ABSENT: Final[list[tuple[str, Any]]] = [
    *(("tool_choice", {}), ("tokens", {}), ("thinking", {}), ("output_config", {})),
    ("output_format", {}),
]
# Not looked at where `content` is there.
OTHER_NAMES: Final = {"/tokenize": ("prompt", "add_special_tokens")}
REQUIRED: Final[dict[str, dict[str, Any]]] = {
    "completion": {"prompt": "a"},
    "infill": {"input_prefix": "a", "input_suffix": "b"},
    "chat": {"messages": [{"role": "user", "content": "a"}]},
    "responses": {"input": "a"},
    "messages": {"messages": [{"role": "user", "content": "a"}]},
    "tokenize": {"content": "a"},
    "detokenize": {"tokens": [1]},
    "control": {"id": "x", "action": "reasoning_end"},
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Starlette]:
    app = make_app(FakeEngine(), slot_save_path=tmp_path)
    yield app
    app.state.templates.close()


async def status_of(app: Starlette, path: str, body: Any) -> int:
    """0 where it was accepted: the scripted engine then waits for the test."""
    request = post(app, path, body)
    done, _ = await asyncio.wait([request.task], timeout=3)
    if not done:
        request.hang_up()
        await asyncio.wait([request.task])
        return 0
    return request.status


async def described(app: Starlette) -> Description:
    return Description((await get(app, "/openapi.json").done()).json)


@pytest.mark.parametrize("path", PATHS)
async def test_what_a_schema_refuses_is_refused(app: Starlette, path: str) -> None:
    description = await described(app)
    schema = description.body_schema("post", path)
    assert schema is not None
    needed = REQUIRED[kind_of(path)]
    assert description.accepts(schema, needed)
    n_refused = 0
    for name in schema["properties"]:
        for value in ODD:
            if (name, value) in ABSENT or name in OTHER_NAMES.get(path, ()):
                continue
            body = needed | {name: value}
            if not description.accepts(schema, body):
                n_refused += 1
                assert await status_of(app, path, body) in (400, 501), (name, value)
    assert n_refused > len(schema["properties"])


@pytest.mark.parametrize("path", PATHS)
async def test_what_clients_send_is_described(app: Starlette, path: str) -> None:
    description = await described(app)
    schema = description.body_schema("post", path)
    assert schema is not None
    for body in GOOD_BODIES[kind_of(path)]:
        assert description.accepts(schema, body)
        assert set(body) <= set(schema["properties"])


async def test_all_that_a_completions_code_knows_is_described(app: Starlette) -> None:
    schema = (await described(app)).body_schema("post", "/completion")
    assert schema is not None
    known = set(CompletionBody.model_fields) - {"legacy_logprobs", "unknown_samplers"}
    assert known <= set(schema["properties"])


class Watched(dict[str, Any]):
    """A body that remembers what it was asked for."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize("path", [path for path in PATHS if path != "/infill"])
async def test_what_is_read_is_described(
    app: Starlette, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = await described(app)
    schema = description.body_schema("post", path)
    assert schema is not None
    seen: list[Watched] = []

    def watch(value: Any) -> Any:
        seen.append(Watched(value))
        return seen[-1]

    # The body's only reader; what it made is looked at by the handlers alone.
    monkeypatch.setattr("unpaced.http.body.decode_json", lambda *_: watch(REQUIRED[kind_of(path)]))
    await status_of(app, path, {})
    assert seen
    assert seen[0].asked <= set(schema["properties"]) | {"n_cmpl", "prompt"}
