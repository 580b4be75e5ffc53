"""POST /infill: the prompt it builds, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.scripted.asgi_client import AsgiRequest, post
from tests.support.scripted.fake_engine import BOS, FakeEngine
from tests.support.scripted.server_app import make_app

PRE, SUF, MID, REPO, SEP = 1, 2, 3, 4, 5

pytestmark = pytest.mark.anyio


def fim_engine(*, repo: int = -1, separator: int = -1, n_ctx: int = 400) -> FakeEngine:
    engine = FakeEngine(n_ctx=n_ctx)
    engine.model = replace(
        engine.model,
        fim_prefix=PRE,
        fim_suffix=SUF,
        fim_middle=MID,
        fim_repo=repo,
        fim_separator=separator,
    )
    engine.answer = b"x"
    return engine


async def infill(engine: FakeEngine, body: dict[str, Any], **settings: Any) -> AsgiRequest:
    return await post(make_app(engine, **settings), "/infill", body).done()


async def prompt_of(engine: FakeEngine, body: dict[str, Any], **settings: Any) -> list[int]:
    response = await infill(engine, body, **settings)
    assert response.status == 200, response.body
    return list(engine.sequences[0].request.prompt)


async def test_prefix_suffix_middle() -> None:
    body = {"input_prefix": "ab", "input_suffix": "yz", "prompt": "c"}
    assert await prompt_of(fim_engine(), body) == [BOS, PRE, *b"abc", SUF, *b"yz", MID]


async def test_suffix_first() -> None:
    body = {"input_prefix": "ab", "input_suffix": "yz", "prompt": "c"}
    prompt = await prompt_of(fim_engine(), body, spm_infill=True)
    assert prompt == [BOS, SUF, *b"yz", PRE, *b"abc", MID]


async def test_other_code_stands_in_front() -> None:
    body = {
        "input_prefix": "a",
        "input_suffix": "z",
        "input_extra": [{"filename": "f", "text": "one"}, {"text": "two"}],
    }
    plain = await prompt_of(fim_engine(), body, batch_size=64)
    snippet = b"\n\n--- snippet ---\n\n"
    end = [BOS, PRE, *b"a", SUF, *b"z", MID]
    assert plain == [*snippet, *b"one", *snippet, *b"two", *end]
    named = await prompt_of(fim_engine(repo=REPO, separator=SEP), body, batch_size=64)
    files = [SEP, *b"f\none", SEP, *b"tmp\ntwo", SEP, *b"filename\n"]
    assert named == [REPO, *b"myproject\n", *files, *end]


async def test_long_code_is_cut_where_it_is_far_from_the_gap() -> None:
    body = {"input_prefix": "a" * 99 + "b", "input_suffix": "c" + "d" * 99}
    prompt = await prompt_of(fim_engine(), body, batch_size=40)
    assert prompt == [BOS, PRE, *b"a" * 29, *b"b", SUF, *b"c", *b"d" * 7, MID]
    crowded: dict[str, Any] = {
        "input_prefix": "a",
        "input_suffix": "z",
        "input_extra": [{"text": "e" * 500}],
    }
    prompt = await prompt_of(fim_engine(n_ctx=100), crowded, batch_size=40, n_predict=20)
    assert prompt == [*b"e" * 20, BOS, PRE, *b"a", SUF, *b"z", MID]


async def test_a_vocabulary_without_the_tokens_is_501() -> None:
    response = await infill(FakeEngine(), {"input_prefix": "a", "input_suffix": "z"})
    assert response.status == 501
    error = response.json["error"]
    assert error["type"] == "not_supported_error"
    assert error["message"] == (
        "Infill is not supported by this model: prefix token is missing. "
        "suffix token is missing. middle token is missing. "
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": 7}, "input_suffix"),
        ({"input_prefix": [1, 2.5]}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"input_extra": {}}, "input_extra"),
        ({"input_extra": ["a"]}, "input_extra"),
        ({"input_extra": [{"filename": "f"}]}, "input_extra"),
        ({"input_extra": [{"filename": 1, "text": "a"}]}, "input_extra"),
        ({"echo": True}, "echo"),
        ({"n_predict": -7}, "n_predict"),
    ],
)
async def test_a_bad_field_is_named(change: dict[str, Any], param: str) -> None:
    engine = fim_engine()
    response = await infill(engine, {"input_prefix": "a", "input_suffix": "z"} | change)
    assert response.status == 400
    assert response.json["error"]["param"] == param
    assert engine.sequences == []
