"""Small endpoints, headers and the log line, on a scripted engine."""

import re
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine_ext import EngineError
from tests.support.scripted.asgi_client import AsgiRequest, get, post
from tests.support.scripted.fake_engine import BOS, N_VOCAB, FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.http.gate import Phase

pytestmark = pytest.mark.anyio


async def test_health_and_readiness_follow_the_heartbeat() -> None:
    engine = FakeEngine()
    app = make_app(engine, stall_timeout=10)
    for path in ("/health", "/v1/health", "/health/live", "/health/ready"):
        request = await get(app, path).done()
        assert (request.status, request.json) == (200, {"status": "ok"})
    engine.heartbeat_age_s = 2.0
    assert (await get(app, "/health/ready").done()).status == 200
    engine.heartbeat_age_s = 6.0  # at half of the limit, which is the end of the process
    request = await get(app, "/health/ready").done()
    assert request.status == 503
    assert "not moved for 6 s" in request.json["error"]["message"]
    assert (await get(app, "/health/live").done()).status == 200


@pytest.mark.parametrize("call", ["tokenize", "submit"])
async def test_an_engine_that_is_gone_in_the_midst_of_a_request_is_503(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()

    def gone(*_: object, **__: object) -> None:
        raise EngineError("the engine is not ready")

    monkeypatch.setattr(engine, call, gone)
    app = make_app(engine)
    paths = ("/completion", "/tokenize") if call == "tokenize" else ("/completion",)
    for path in paths:
        done = await post(app, path, {"prompt": "a", "content": "a"}).done()
        assert done.status == 503
        assert done.json["error"]["message"] == "the engine is not ready"


async def test_a_failed_engine_is_told_everywhere() -> None:
    app = make_app(FakeEngine())
    gate = app.state.gate
    gate.phase, gate.failure = Phase.FAILED, "the GPU is gone"
    ready = await get(app, "/health/ready").done()
    assert ready.status == 503
    assert ready.json["error"]["message"] == "the engine has failed: the GPU is gone"
    assert (await get(app, "/health/live").done()).status == 200
    for answer in (get(app, "/health"), post(app, "/completion", {"prompt": "a"})):
        done = await answer.done()
        assert done.status == 503
        assert done.json["error"]["message"] == "the engine has failed"
        assert done.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("method", "path", "has"),
    [
        ("GET", "/nope", ""),
        ("GET", "/completion", "; it has POST"),
        ("POST", "/health", "; it has GET"),
        ("PUT", "/props", "; it has GET, POST"),
        ("GET", "/" + "x" * 9000, ""),
    ],
)
async def test_a_wrong_path_or_method_is_404_as_in_llama_server(
    method: str, path: str, has: str
) -> None:
    app = make_app(FakeEngine())
    request = await AsgiRequest(app, method, path, b"", []).done()
    assert request.status == 404
    error = request.json["error"]
    shown = path if len(path) < 200 else f"{path[:200]}..."
    message = f"File Not Found: there is no {method} {shown}{has}"
    assert error == {"message": message, "type": "not_found_error", "code": 404}
    assert list(error) == ["message", "type", "code"]


async def test_head_is_answered_as_get() -> None:
    app = make_app(FakeEngine())
    for path, status in (("/health", 200), ("/v1/models", 200), ("/completion", 404)):
        assert (await AsgiRequest(app, "HEAD", path, b"", []).done()).status == status


async def test_a_slash_too_many_is_404_and_no_redirect() -> None:
    answer = await get(make_app(FakeEngine()), "/health/").done()
    assert answer.status == 404
    assert answer.json["error"]["message"] == "File Not Found: there is no GET /health/"


async def test_a_preflight_says_text_html_alone() -> None:
    answer = await AsgiRequest(make_app(FakeEngine()), "OPTIONS", "/v1/models", b"", []).done()
    assert answer.headers["content-type"] == "text/html"


async def test_models_lists_the_aliases() -> None:
    for alias, names in (("", ["x/demo.gguf"]), ("zed, alpha", ["alpha", "zed"])):
        request = await get(
            make_app(FakeEngine(), alias=alias, model="x/demo.gguf"), "/models"
        ).done()
        entry = request.json["data"][0]
        assert (entry["id"], entry["aliases"]) == (names[0], names)
        assert entry["meta"]["n_vocab"] == N_VOCAB
        assert list(entry) == [
            "id", "aliases", "tags", "object", "created", "owned_by", "meta",
        ]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_a_model_is_described_under_each_of_its_names(prefix: str) -> None:
    app = make_app(FakeEngine(), alias="org/zed,alpha", api_prefix=prefix)
    listed = (await get(app, f"{prefix}/v1/models").done()).json["data"][0]
    for name in ("alpha", "org/zed"):
        answer = await get(app, f"{prefix}/v1/models/{name}").done()
        assert answer.status == 200
        assert answer.json == listed | {"id": name, "created": answer.json["created"]}
    answer = await get(app, f"{prefix}/v1/models/beta").done()
    assert answer.status == 404
    error = answer.json["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'beta'" in error["message"]


async def test_props_has_llama_servers_keys() -> None:
    body = (await get(make_app(FakeEngine(), parallel=3), "/props").done()).json
    assert body["total_slots"] == 3
    assert body["default_generation_settings"]["n_ctx"] == 128
    params = body["default_generation_settings"]["params"]
    assert params["temperature"] == 0.800000011920929
    assert "stop" not in params
    assert (body["bos_token"], body["eos_token"]) == ("<s>", "</s>")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"content": "ab"}, [97, 98]),
        ({"content": "ab", "add_special": True}, [BOS, 97, 98]),
        ({"content": [1, "a"]}, [1, 97]),
        ({}, []),
        ({"content": None}, []),
        ({"content": "\u20ac", "with_pieces": True}, [(226, [226]), (130, [130]), (172, [172])]),
        ({"content": "a", "with_pieces": True}, [(97, "a")]),
    ],
)
async def test_tokenize(body: dict[str, Any], expected: list[Any]) -> None:
    request = await post(make_app(FakeEngine()), "/tokenize", body).done()
    tokens = request.json["tokens"]
    if body.get("with_pieces"):
        tokens = [(entry["id"], entry["piece"]) for entry in tokens]
    assert tokens == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": 5}),
        ("/tokenize", {"content": [-1]}),
        ("/tokenize", {"content": "a", "add_special": 1}),
        ("/detokenize", {"tokens": "x"}),
        ("/detokenize", {"tokens": ""}),
        ("/detokenize", {"tokens": {}}),
        ("/detokenize", {"tokens": False}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [N_VOCAB]}),
        ("/detokenize", {"tokens": [2**40]}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [True]}),
        ("/detokenize", {"tokens": [1.5]}),
    ],
)
async def test_bad_tokens_are_400(path: str, body: dict[str, Any]) -> None:
    request = await post(make_app(FakeEngine()), path, body).done()
    assert request.status == 400
    assert "Field" in request.json["error"]["message"] or "tokens" in request.body.decode()


async def test_detokenize_spells_control_tokens() -> None:
    app = make_app(FakeEngine())
    request = await post(app, "/detokenize", {"tokens": [BOS, 97, 226]}).done()
    assert request.json == {"content": "<s>a\ufffd"}
    assert (await post(app, "/detokenize", {}).done()).json == {"content": ""}


async def test_a_request_id_is_taken_over_only_if_plain() -> None:
    app = make_app(FakeEngine())
    good = await get(app, "/health", x_request_id="abc-1.2_3").done()
    assert good.headers["x-request-id"] == "abc-1.2_3"
    for bad in ("a b", "a\r\nx: y", "x" * 129, ""):
        request = await get(app, "/health", x_request_id=bad).done()
        assert re.fullmatch("[0-9a-f]{32}", request.headers["x-request-id"])


async def test_a_body_over_the_limit_is_413() -> None:
    app = make_app(FakeEngine(), max_body_bytes=1024)
    for headers in ({}, {"content_length": "5000"}):
        request = await post(app, "/completion", b"x" * 5000, **headers).done()
        assert (request.status, request.headers["connection"]) == (413, "close")


async def test_a_body_that_never_comes_is_408() -> None:
    app = make_app(FakeEngine(), body_timeout=0.05)
    request = AsgiRequest(app, "POST", "/completion", None, [])
    await request.done()
    assert request.status == 408


async def test_api_prefix_goes_in_front_of_every_route() -> None:
    app = make_app(FakeEngine(), api_prefix="/llm")
    assert (await get(app, "/llm/health").done()).status == 200
    assert (await get(app, "/health").done()).status == 404


MODEL = "demo.gguf"


def metric_values(request: AsgiRequest) -> dict[str, float]:
    families = text_string_to_metric_families(request.body.decode())
    return {
        sample.name + "".join(f"{{{v}}}" for _, v in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


async def test_metrics_are_the_sums_of_the_responses() -> None:
    engine = FakeEngine()
    engine.answer = b"abc"
    app = make_app(engine)
    n_prompt = n_decoded = 0
    for i in range(5):
        request = await post(app, "/v1/completions", {"prompt": "x" * i}).done()
        n_prompt += request.json["usage"]["prompt_tokens"]
        n_decoded += request.json["usage"]["completion_tokens"]
    request = await get(app, "/metrics").done()
    assert request.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = metric_values(request)
    assert values[f"unpaced_prompt_tokens_total{{{MODEL}}}"] == n_prompt
    assert values[f"unpaced_generated_tokens_total{{{MODEL}}}"] == n_decoded
    assert values["llamacpp:tokens_predicted_total"] == n_decoded
    assert values["llamacpp:prompt_tokens_total"] == n_prompt
    largest = re.search(rb"^llamacpp:n_tokens_max (\S+)$", request.body, re.MULTILINE)
    assert largest is not None
    assert float(largest[1]) == 5 + 3 - 1  # the last token is never computed
    assert values[f"unpaced_inter_token_seconds_count{{{MODEL}}}"] == n_decoded - 5
    assert values[f"unpaced_time_to_first_token_seconds_count{{{MODEL}}}"] == 5
    assert values[f"unpaced_completions_finished_total{{{MODEL}}}{{length}}"] == 5
    assert values["unpaced_engine_state{ready}"] == 1
    assert values["unpaced_http_requests_total{/v1/completions}{200}"] == 5


async def test_phases_of_a_step_are_told_by_whose_kernels_compute_them() -> None:
    engine = FakeEngine()
    phases: list[dict[str, str | int]] = [
        {"phase": "norm", "kernels": "own", "why": "", "n": 33},
        {"phase": "ggml", "kernels": "ggml", "why": "attention", "n": 31},
        {"phase": "ggml", "kernels": "ggml", "why": "attention; ADD", "n": 1},
    ]
    engine.decode_loop = replace(engine.decode_loop, phases=phases)
    app = make_app(engine)
    values = metric_values(await get(app, "/metrics").done())
    assert values["unpaced_step_phases{own}{norm}"] == 33
    assert values["unpaced_step_phases{ggml}{ggml}"] == 32
    props = (await get(app, "/props").done()).json
    assert props["unpaced"]["decode_loop"]["phases"] == phases


async def test_metrics_can_be_turned_off() -> None:
    request = await get(make_app(FakeEngine(), metrics=False), "/metrics").done()
    assert request.status == 501
    assert request.json["error"]["type"] == "not_supported_error"


async def test_an_internal_fault_is_a_500_without_details() -> None:
    engine = FakeEngine()
    app = make_app(engine)

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    engine.submit = broken  # type: ignore[method-assign, assignment]
    request = post(app, "/completion", {"prompt": "a"})
    with pytest.raises(ZeroDivisionError):
        await request.done()
    assert request.status == 500
    assert b"secret" not in request.body
