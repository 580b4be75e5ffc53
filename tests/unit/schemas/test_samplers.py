"""Names of samplers: llama-server's, and what becomes of others."""

import re
from typing import Any

import pytest

from tests.support.llama_source import source_text
from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.settings import Settings
from unpaced.settings.model_defaults import with_model_defaults
from unpaced.values.samplers import known_and_unknown


def llama_names() -> set[str]:
    """Every spelling that common_sampler_types_from_names makes, read from its source."""
    text = source_text("common/sampling.cpp")
    body = text[text.index("common_sampler_types_from_names(") :]
    body = body[: body.index("common_sampler_types_from_chars(")]
    canonical = re.findall(r'{ "(\w+)",', body)
    other = re.findall(r'insert\({"([\w-]+)",', body)
    assert len(canonical) == 11
    assert other
    dashed = {name.replace("_", "-") for name in canonical}
    return {*canonical, *other, *dashed, *(name.replace("_", "") for name in canonical)}


def test_the_names_are_llama_servers_and_no_others() -> None:
    names = llama_names()
    assert known_and_unknown(sorted(names))[1] == ()
    assert known_and_unknown([name.upper() for name in names])[1] == ()
    others = (
        "typical", "typical_p", "typical-p", "top_sigma", "tfs_z", " top_k", "top-n_sigma", "",
    )  # fmt: skip
    assert not names & set(others)
    assert known_and_unknown(others) == ((), others)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("samplers", "chain", "header"),
    [
        (["top_k", "typical_p", "tfs_z"], ["top_k"], "typical_p, tfs_z"),
        ("kz", ["top_k"], "z"),
        (["no\r\nX-Header: 1", "\u00e9"], [], "no??X-Header??1, ?"),
        (["top_k"], ["top_k"], None),
    ],
)
@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
async def test_unknown_ones_are_left_out_and_the_answer_says_so(
    path: str, samplers: Any, chain: list[str], header: str | None
) -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "samplers": samplers}
    answer = await post(make_app(engine), path, body | {"n_predict": 2}).done()
    assert answer.status == 200
    assert list(engine.sequences[0].request.sampling.samplers) == chain
    assert answer.headers.get("x-unknown-samplers") == header


@pytest.mark.anyio
async def test_the_header_is_bounded() -> None:
    engine = FakeEngine()
    engine.answer = b"ok"
    body = {"prompt": "a", "n_predict": 2, "samplers": ["x" * 10_000] * 50}
    answer = await post(make_app(engine), "/completion", body).done()
    assert answer.status == 200
    assert 0 < len(answer.headers["x-unknown-samplers"]) < 1000


def test_a_models_own_chain_loses_the_unknown_ones_alone() -> None:
    metadata = {"general.sampling.sequence": "top_k;typical;nucleus"}
    settings = with_model_defaults(Settings(), metadata)
    assert settings.sampling_defaults().samplers == ("top_k", "top_p")
