"""Routes of llama-server that this server answers without having the feature, and Vertex AI's."""

import re
from typing import Any

import pytest

from tests.support.scripted.asgi_client import AsgiRequest, get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.cli.flags import read_command_line
from unpaced.routes.vertex import VertexAi

pytestmark = pytest.mark.anyio

_EMBEDDINGS = "This server does not support embeddings: it generates text only"
_RERANKING = "This server does not support reranking: it generates text only"
_PROPS = "This server does not support changing global properties. Start it with `--props`"
_AUDIO = "The current model does not support audio input."


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/embedding", 501, _EMBEDDINGS),
        ("/embeddings", 501, _EMBEDDINGS),
        ("/v1/embeddings", 501, _EMBEDDINGS),
        ("/rerank", 501, _RERANKING),
        ("/reranking", 501, _RERANKING),
        ("/v1/rerank", 501, _RERANKING),
        ("/v1/reranking", 501, _RERANKING),
        ("/audio/transcriptions", 501, _AUDIO),
        ("/v1/audio/transcriptions", 501, _AUDIO),
        ("/props", 501, _PROPS),
        ("/models", 404, "File Not Found: there is no POST /models; it has GET"),
        ("/models/load", 404, "File Not Found: there is no POST /models/load"),
        ("/models/unload", 404, "File Not Found: there is no POST /models/unload"),
        ("/predict", 404, "File Not Found: there is no POST /predict"),
    ],
)  # fmt: skip
async def test_the_status_is_llama_servers_and_no_advice_is_refused(
    path: str, status: int, message: str
) -> None:
    request = await post(make_app(FakeEngine()), path, {"model": "x"}).done()
    assert request.status == status
    kind = "not_found_error" if status == 404 else "not_supported_error"
    assert request.json == {"error": {"code": status, "message": message, "type": kind}}
    for flag in re.findall("`(--[a-z-]+)`", message):
        read_command_line([flag])


@pytest.mark.parametrize("path", ["/tools", "/cors-proxy"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_tools_and_proxy_are_disabled(path: str, method: str) -> None:
    app = make_app(FakeEngine())
    request = await (get(app, path) if method == "GET" else post(app, path, {})).done()
    assert request.status == 403
    assert request.json == {
        "error": {"message": "this feature is disabled", "type": "feature_disabled"}
    }


async def test_props_can_be_posted_where_that_was_asked_for() -> None:
    app = make_app(FakeEngine(), props=True)
    request = await post(app, "/props", {}).done()
    assert (request.status, request.json) == (200, {"success": True})
    assert (await get(app, "/props").done()).json["endpoint_props"] is True


async def test_no_stream_is_kept_to_be_resumed() -> None:
    app = make_app(FakeEngine())
    request = AsgiRequest(app, "GET", "/v1/stream", b"", [])
    assert (await request.done()).status == 400
    assert request.json["error"]["message"] == "Missing conversation id in path"
    request = await post(app, "/v1/streams/lookup", {"conversation_ids": ["a"]}).done()
    assert (request.status, request.json) == (200, [])
    assert (await post(app, "/v1/streams/lookup", b"{").done()).status == 400


async def test_models_has_tags() -> None:
    app = make_app(FakeEngine(), alias="b,a", tags="small, chat,small")
    entry = (await get(app, "/models").done()).json["data"][0]
    assert (entry["id"], entry["tags"]) == ("a", ["chat", "small"])


# -- Vertex AI ------------------------------------------------------------------------------------


@pytest.fixture
def vertex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    monkeypatch.setenv("AIP_HTTP_PORT", "9090")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "alive")


def test_the_environment_is_read() -> None:
    assert VertexAi.from_environment({}) is None
    assert VertexAi.from_environment({"AIP_MODE": "OTHER"}) is None
    assert VertexAi.from_environment({"AIP_MODE": "PREDICTION"}) == VertexAi(8080, "", "/predict")
    with pytest.raises(ValueError, match="AIP_HTTP_PORT"):
        VertexAi.from_environment({"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "x"})


@pytest.mark.usefixtures("vertex")
async def test_predictions_are_the_answers_of_the_routes_in_order() -> None:
    engine = FakeEngine()
    engine.answer = b"hello"
    app = make_app(engine, api_key=("k",))
    instances: list[Any] = [
        {"@requestFormat": "completions", "prompt": "x", "max_tokens": 5},
        {"@requestFormat": "/completion", "prompt": "y", "n_predict": 5},
        {"@requestFormat": "completions", "prompt": 5},
        {"@requestFormat": "nothing"},
        {"@requestFormat": "/predict", "instances": []},
        {"@requestFormat": "completions", "prompt": "x", "stream": True},
        {"prompt": "x"},
        7,
    ]
    request = await post(app, "/predict", {"instances": instances}, authorization="Bearer k").done()
    assert request.status == 200
    predictions = request.json["predictions"]
    assert predictions[0]["choices"][0]["text"] == "hello"
    assert predictions[1]["content"] == "hello"
    assert [prediction["error"]["code"] for prediction in predictions[2:]] == [400] * 6
    assert (await get(app, "/alive").done()).status == 401
    assert (await get(app, "/alive", authorization="k").done()).status == 200


@pytest.mark.usefixtures("vertex")
@pytest.mark.parametrize(
    "body", [{}, {"instances": {}}, {"instances": [{}] * 129}], ids=["none", "object", "many"]
)
async def test_predict_refuses_what_is_no_list_of_instances(body: dict[str, Any]) -> None:
    request = await post(make_app(FakeEngine()), "/predict", body).done()
    assert request.status == 400
    assert "instances" in request.json["error"]["message"]
