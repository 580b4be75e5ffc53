"""Every field of a completion: absent, null, valid, at its edge, out of range, of a wrong type."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from engine_ext import SamplingParams
from tests.support.scripted.asgi_client import AsgiRequest, post
from tests.support.scripted.fake_engine import BOS, N_VOCAB, FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.http.errors import ApiError
from unpaced.schemas.completion import parse_completion

MAX = 2**31 - 1
# field: (accepted values, refused values)
FIELDS: dict[str, tuple[list[Any], list[Any]]] = {
    "seed": ([0, -1, 42, 2**32 - 1, 2**63 - 1, 3.0], ["1", True, 1.5, [1]]),
    "temperature": ([0, 0.8, -1, 3e38], ["1", True, 1e39, {}]),
    "dynatemp_range": ([0, 0.5], ["1"]),
    "dynatemp_exponent": ([1, 0.5], ["1"]),
    "top_k": ([0, 40, -5, MAX, 2**40], ["1", True, 1.5]),
    "top_p": ([0, 0.5, 1, 7, -1], ["1", False]),
    "min_p": ([0, 0.5, 1, 7, -1], ["1"]),
    "top_n_sigma": ([-1, 0.5], ["1"]),
    "xtc_probability": ([0, 1, 5], ["1"]),
    "xtc_threshold": ([0, 1, 5], ["1"]),
    "typical_p": ([0, 1, 5], ["1"]),
    "repeat_last_n": ([0, 64, MAX], [-1, MAX + 1, "1"]),
    "repeat_penalty": ([1, 0.5, 2], [0, -1, "1"]),
    "frequency_penalty": ([0, -2, 2], ["1"]),
    "presence_penalty": ([0, -2, 2], ["1"]),
    "dry_multiplier": ([0, 0.8], ["1"]),
    "dry_base": ([1.75, 0.5], ["1"]),
    "dry_allowed_length": ([0, 2, MAX], [-1, "1"]),
    "dry_penalty_last_n": ([0, 64], [-1, "1"]),
    "dry_sequence_breakers": ([["\n"], ["a", "b"]], [[], ["", ""], "a", [1]]),
    "mirostat": ([0, 1, 2, 5, -1], ["1"]),
    "mirostat_tau": ([5, 0.1], ["1"]),
    "mirostat_eta": ([0.1], ["1"]),
    "min_keep": ([0, 5], [-1, "1"]),
    "samplers": (
        [
            ["top_k", "temperature"],
            ["TOP-K", "nucleus", "temp"],
            "kpt",
            [],
            "",
            "ka",
            ["topk", "adaptive-p"],
            ["top_k", "infill"],
            "ki",
            ["bogus", "top_k"],
            "kz",
        ],
        [5, [5]],
    ),
    "ignore_eos": ([True, False], ["true", 1]),
    "logit_bias": (
        [[], {}, [[1, 2.5]], [[1, False]], [["ab", -1]], {"1": 5}, {"ab": 1}],
        [5, "x", [[1]], [[-1, 1]], [[N_VOCAB, 1]], {"-1": 1}, {"300": 1}, [[1, "x"]], [[1, True]]],
    ),
    "adaptive_target": ([-1, -0.5, 0, 0.5, 1, 2], ["1"]),
    "adaptive_decay": ([0.9, 0, 0.99], [1, -1, "1"]),
    "backend_sampling": ([True, False], [0, "x"]),
    "grammar": (["", 'root ::= "a"'], [5]),
    "json_schema": ([{}, {"type": "object"}, True], [5, "object", []]),
    "grammar_lazy": ([False], [True, 1]),
    "grammar_triggers": (
        [[], [{"type": 1, "value": "ab"}], [{"type": 0, "value": "a", "token": 97}]],
        [
            5,
            [5],
            [{}],
            [{"type": 9}],
            [{"type": True, "value": "ab"}],
            [{"type": 1}],
            [{"type": 1, "value": ""}],
            [{"type": 2, "value": "a.*b"}],
            [{"type": 0, "value": "a"}],
            [{"type": 0, "value": "a", "token": N_VOCAB}],
            [{"type": 0, "value": "a", "token": -1}],
            [{"type": 1, "value": "ab"}] * 65,
        ],
    ),
    "preserved_tokens": ([[], ["a"], ["abc"]], ["a", [5]]),
    "repetition_penalty": ([1, 1.0], [1.1, True]),
    "n_predict": ([-1, 0, 1, MAX], [-2, MAX + 1, "1", True, 1.5]),
    "max_tokens": ([-1, 1], [-2, "1"]),
    "max_completion_tokens": ([-1, 1], [-2, "1"]),
    "n": ([1, 2, 128], [0, -1, 129, "1"]),
    "n_cmpl": ([1, 2], [0, 129]),
    "stop": (["", "a", [], ["a", "b"], ["", "a"]], [5, [5], ["a"] * 257, "x" * 4097, {}]),
    "stream": ([True, False], ["yes", 1]),
    "stream_options": ([{}, {"include_usage": True}], [5, {"include_usage": 1}]),
    "echo": ([True, False], ["yes", 1]),
    "n_probs": ([0, 5, 1000, True, False], [-1, "1", 1.5]),
    "logprobs": ([0, 5, True, False], [-1, "1"]),
    "post_sampling_probs": ([True, False], [1]),
    "cache_prompt": ([True, False], [1]),
    "return_tokens": ([True, False], [1]),
    "return_progress": ([True, False], [1]),
    "timings_per_token": ([True, False], [1]),
    "verbose": ([True, False], [1]),
    "sse_ping_interval": ([-1, 0, 30], [-2, "1"]),
    "response_fields": ([[], [""], ["content"]], ["content", [5]]),
    "n_keep": ([-1, 0, 5], [-2, "1"]),
    "n_discard": ([0, 5], [-1, "1"]),
    "n_indent": ([0, 1], [-1, "1"]),
    "t_max_predict_ms": ([0, -1, 2**63 - 1], [-2, "1"]),
    "n_cache_reuse": ([0, 1], [-1, "1"]),
    "id_slot": ([-1, 0, 7], [-2, "1"]),
    "lora": ([[]], [[{"id": 0, "scale": 1}]]),
    "response_format": (
        [
            {},
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_object", "schema": {"type": "array"}},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
        ],
        ["text", 5, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 5}],
    ),
    "suffix": ([""], ["end"]),
    "best_of": ([1], [2, 0]),
    "min_tokens": ([0], [1]),
    "stop_token_ids": ([[]], [[5]]),
    # Known to OpenAI's clients and harmless; and keys that nobody knows.
    "model": (["gpt-4", 5], []),
    "user": (["me"], []),
    "metadata": ([{"a": "b"}], []),
    "store": ([True], []),
    "service_tier": (["auto"], []),
    "no_such_field": ([1, "x", {}], []),
}
ACCEPTED = [(name, value) for name, (good, _) in FIELDS.items() for value in [*good, None]]
REFUSED = [(name, value) for name, (_, bad) in FIELDS.items() for value in bad]

pytestmark = pytest.mark.anyio


def small_app() -> Starlette:
    engine = FakeEngine()
    engine.answer = b"ok"
    return make_app(engine)


async def complete(app: Starlette, body: Any, path: str = "/v1/completions") -> AsgiRequest:
    return await post(app, path, body).done()


async def test_accepted_values() -> None:
    app = small_app()
    for name, value in ACCEPTED:
        request = await complete(app, {"prompt": "hi", name: value})
        assert request.status == 200, (name, value, request.body)


async def test_refused_values_name_the_field_and_the_next_request_is_served() -> None:
    app = small_app()
    for name, value in REFUSED:
        request = await complete(app, {"prompt": "hi", name: value})
        assert request.status == 400, (name, value, request.body)
        error = request.json["error"]
        field = {"stream_options": error.get("param"), "samplers": "samplers"}.get(name, name)
        assert error["param"] == field, (name, value, error)
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith(f"Field '{field}': ")
        assert (await complete(app, {"prompt": "hi"})).status == 200


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("ab", [[BOS, 97, 98]]),
        ("", [[BOS]]),
        ([1, 2], [[1, 2]]),
        ([1.0, 2.0], [[1, 2]]),
        ([1, "ab", 2], [[1, 97, 98, 2]]),
        (["a", 1], [[BOS, 97, 1]]),
        (["a", "b"], [[BOS, 97], [BOS, 98]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [3, "b"]], [[BOS, 97], [3, 98]]),
        ({"prompt_string": "a"}, [[BOS, 97]]),
        ([{"prompt_string": "a"}, "b"], [[BOS, 97], [BOS, 98]]),
    ],
)
async def test_forms_of_the_prompt(prompt: Any, tokens: list[list[int]]) -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    request = await complete(make_app(engine), {"prompt": prompt})
    assert request.status == 200, request.body
    assert [list(sequence.request.prompt) for sequence in engine.sequences] == tokens


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        5,
        True,
        [],
        [[]],
        ["a", []],
        [-1],
        [N_VOCAB],
        [2**31],
        [2**63],
        [1, -1],
        [1.5],
        [1, True],
        [1, [2]],
        [1, None],
        [None],
        {},
        {"prompt_string": 5},
        {"prompt_string": "a", "multimodal_data": ["aGk="]},
    ],
)
async def test_bad_prompts_are_refused(prompt: Any) -> None:
    app = small_app()
    request = await complete(app, {"prompt": prompt})
    assert request.status == 400
    assert request.json["error"]["param"] == "prompt"
    assert (await complete(app, {"prompt": "hi"})).status == 200


@pytest.mark.parametrize(("n_prompt", "status"), [(126, 200), (127, 200), (128, 400), (500, 400)])
async def test_a_prompt_must_leave_room_for_a_token(n_prompt: int, status: int) -> None:
    app = small_app()
    request = await complete(app, {"prompt": [5] * n_prompt})
    assert request.status == status
    if status == 400:
        error = request.json["error"]
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (n_prompt, 128)
        assert error["code"] == "context_length_exceeded"
        native = await post(app, "/completion", {"prompt": [5] * n_prompt}).done()
        assert native.json["error"] == error | {"code": 400}


@pytest.mark.parametrize(
    "body", [b"", b"garbage", b"[1]", b'"x"', b'{"prompt": NaN}', b'{"prompt": "\xff"}', b"{"]
)
async def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    request = await complete(small_app(), body)
    assert request.status == 400
    assert request.json["error"]["type"] == "invalid_request_error"


async def test_a_byte_order_mark_is_no_part_of_the_body() -> None:
    engine = FakeEngine()
    request = post(make_app(engine), "/completion", b'\xef\xbb\xbf{"prompt": "a"}')
    await engine.submitted()
    engine.sequences[0].play(b"x")
    assert (await request.done()).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "BR", "zstd"])
async def test_a_compressed_body_is_415(encoding: str) -> None:
    app = make_app(FakeEngine())
    request = await post(app, "/completion", b"\x1f\x8b", content_encoding=encoding).done()
    assert request.status == 415
    assert encoding in request.json["error"]["message"]


async def test_numbers_without_end_are_refused() -> None:
    body = b'{"prompt": "a", "temperature": 1e400}'
    assert (await complete(small_app(), body)).status == 400


async def test_what_a_request_does_not_say_is_the_servers_default() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine, temp=0.25, seed=7, n_predict=9, reverse_prompt=("END",), top_k=3)
    request = await complete(app, {"prompt": "a", "top_k": 5, "max_tokens": None}, "/completion")
    sent = engine.sequences[0].request
    assert (sent.sampling.temperature, sent.sampling.seed, sent.sampling.top_k) == (0.25, 7, 5)
    assert sent.max_tokens == 9
    assert request.json["generation_settings"]["stop"] == ["END"]


async def test_verbose_is_the_servers_default_too() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine, verbose=True)
    assert "__verbose" in (await complete(app, {"prompt": "a"})).json
    assert "__verbose" not in (await complete(app, {"prompt": "a", "verbose": False})).json


async def test_a_request_that_names_minus_one_takes_the_servers_limit_and_shows_minus_one() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine, n_predict=9)
    request = await complete(app, {"prompt": "a", "n_predict": -1}, "/completion")
    assert engine.sequences[0].request.max_tokens == 9
    assert request.json["generation_settings"]["n_predict"] == -1


@pytest.mark.parametrize("name", ["none", "auto", "deepseek", "deepseek-legacy"])
async def test_a_reasoning_format_is_checked_and_shown(name: str) -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    app = make_app(engine)
    request = await complete(app, {"prompt": "a", "reasoning_format": name}, "/completion")
    assert request.json["generation_settings"]["reasoning_format"] == name
    refused = await complete(app, {"prompt": "a", "reasoning_format": f"{name}!"}, "/completion")
    assert refused.status == 400


async def test_zero_tokens_are_one_as_in_llama_server() -> None:
    engine = FakeEngine()
    engine.answer = b"o"
    await complete(make_app(engine), {"prompt": "a", "max_tokens": 0})
    assert engine.sequences[0].request.max_tokens == 1


async def test_the_first_alias_wins() -> None:
    parsed = parse_completion(
        {"prompt": "a", "max_tokens": 3, "max_completion_tokens": 2, "n_predict": None}
    )
    assert parsed.n_predict == 2


_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -1, MAX, MAX + 1, 2**63, -(2**63), 1e38, 1e39]),
)
_VALUES = st.one_of(_NUMBERS, st.none(), st.booleans(), st.text(max_size=3), st.lists(_NUMBERS))


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), _VALUES, max_size=4))
def test_any_values_are_refused_or_give_parameters_the_engine_takes(body: dict[str, Any]) -> None:
    try:
        parsed = parse_completion({"prompt": "a", **body})
        params = parsed.to_sampling_params(SamplingParams(), None)
    except ApiError as error:
        assert error.status == 400
        return
    for name in SamplingParams.__slots__:
        value = getattr(params, name)
        if isinstance(value, float):
            assert math.isfinite(value)
            assert abs(value) <= 3.5e38
        elif isinstance(value, int):
            assert -(2**31) <= value < 2**32
