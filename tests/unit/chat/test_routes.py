"""/v1/chat/completions and its relatives on a scripted engine."""

from typing import Any

import pytest

from tests.support.scripted.asgi_client import post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hello"}]


async def test_a_whole_answer_has_llama_servers_shape() -> None:
    engine = FakeEngine()
    engine.answer = b"Hi there"
    app = make_app(engine)
    for path in ("/v1/chat/completions", "/chat/completions"):
        body = (await post(app, path, {"messages": HELLO}).done()).json
        assert list(body) == [
            "choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings",
        ]  # fmt: skip
        message = {"role": "assistant", "content": "Hi there"}
        assert body["choices"] == [{"finish_reason": "length", "index": 0, "message": message}]
        assert body["object"] == "chat.completion"
        assert body["id"].startswith("chatcmpl-")


async def test_a_stream_begins_with_the_role_and_ends_with_usage() -> None:
    engine = FakeEngine()
    engine.answer = b"Hi"
    app = make_app(engine)
    body = {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    request = await post(app, "/v1/chat/completions", body).done()
    deltas = [choice["delta"] for event in request.events for choice in event["choices"]]
    role = {"role": "assistant", "content": None}
    assert deltas == [role, {"content": "H"}, {"content": "i"}, {}]
    assert [choice["finish_reason"] for e in request.events for choice in e["choices"]] == [
        None, None, None, "length",
    ]  # fmt: skip
    usage = request.events[-1]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert ["timings" in event for event in request.events] == [False] * 4 + [True]
    assert request.body.endswith(b"data: [DONE]\n\n")


async def test_the_role_comes_with_the_first_token_even_if_its_text_is_held_back() -> None:
    engine = FakeEngine()
    engine.answer = "é".encode()
    app = make_app(engine)
    request = await post(app, "/chat/completions", {"messages": HELLO, "stream": True}).done()
    deltas = [event["choices"][0]["delta"] for event in request.events]
    assert deltas == [{"role": "assistant", "content": None}, {"content": "é"}, {}]


async def test_the_prompt_is_the_rendered_template() -> None:
    app = make_app(FakeEngine())
    expected = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    request = await post(app, "/apply-template", {"messages": HELLO}).done()
    assert request.json == {"prompt": expected}
    for path in ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"):
        counted = await post(app, path, {"messages": HELLO}).done()
        assert counted.json == {
            "input_tokens": len(expected) + 1,
            "object": "response.input_tokens",
        }


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        (None, "messages"),
        ("text", "messages"),
        ([123], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"role": 1}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "assistant"}], "messages[0].content"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "sound"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].type"),
    ],
)
async def test_a_bad_message_is_named(messages: Any, named: str) -> None:
    app = make_app(FakeEngine())
    request = await post(app, "/chat/completions", {"messages": messages}).done()
    assert request.status == 400
    assert request.json["error"]["param"] == named


async def test_logprobs_rules() -> None:
    engine = FakeEngine()
    engine.answer = b"ab"
    app = make_app(engine)
    body = {"messages": HELLO, "top_logprobs": 1}
    request = await post(app, "/chat/completions", body).done()
    assert request.status == 400
    assert request.json["error"]["message"] == "top_logprobs requires logprobs to be set to true"
    whole = await post(app, "/chat/completions", body | {"logprobs": True}).done()
    entries = whole.json["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["a", "b"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [1, 1]
    streamed = await post(
        app, "/chat/completions", body | {"logprobs": True, "stream": True}
    ).done()
    choices = [event["choices"][0] for event in streamed.events]
    assert [c["logprobs"]["content"][0]["token"] for c in choices if "logprobs" in c] == ["a", "b"]
