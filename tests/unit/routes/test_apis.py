"""/v1/messages and /v1/responses: shapes, event order, errors; the chat's parser is scripted."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import unpaced.chat.compiled_chat
from engine_ext import FinishReason
from tests.support.scripted.asgi_client import AsgiRequest, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.chat.answer.delta import ChatDelta, ToolCallDelta
from unpaced.http.gate import Phase

pytestmark = pytest.mark.anyio

MESSAGES = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
INPUT = {"input": "Hi", "max_output_tokens": 20}


class ScriptedParser:
    """`?` is a thought; `(` begins a call of f, and all after it are its arguments."""

    def __init__(self) -> None:
        self._content = ""
        self._reasoning = ""
        self._arguments: str | None = None

    @property
    def has_tool_calls(self) -> bool:
        return self._arguments is not None

    def push(self, text: str) -> list[ChatDelta]:
        return [self._take(letter) for letter in text]

    def _take(self, letter: str) -> ChatDelta:
        if letter == "(":
            self._arguments = ""
            return ChatDelta(tool_calls=(ToolCallDelta(0, id="x1", name="f"),))
        if self._arguments is not None:
            self._arguments += letter
            return ChatDelta(tool_calls=(ToolCallDelta(0, arguments=letter),))
        if letter == "?":
            self._reasoning += letter
            return ChatDelta(reasoning=letter)
        self._content += letter
        return ChatDelta(content=letter)

    def finish(self) -> list[ChatDelta]:
        return []

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._content}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._arguments is not None:
            function = {"name": "f", "arguments": self._arguments}
            message["tool_calls"] = [{"type": "function", "function": function, "id": "x1"}]
        return message


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(
        unpaced.chat.compiled_chat.CompiledChat, "new_parser", lambda _: ScriptedParser()
    )
    yield


async def answer(
    path: str, body: dict[str, Any], text: bytes, reason: FinishReason = FinishReason.EOS
) -> AsgiRequest:
    engine = FakeEngine()
    request = post(make_app(engine), path, body)
    (await engine.submitted()).play(text, reason)
    await request.done()
    assert request.status == 200, request.body
    return request


def events_of(request: AsgiRequest) -> list[dict[str, Any]]:
    """Every event; each must bear its type as its name."""
    events = []
    for frame in request.body.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        events.append(orjson.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


@pytest.mark.usefixtures("scripted")
async def test_a_message_has_blocks() -> None:
    body = (await answer("/v1/messages", MESSAGES, b'?ab({"k":1}')).json
    assert body.pop("id").startswith("msg_")
    assert body == {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "?", "signature": ""},
            {"type": "text", "text": "ab"},
            {"type": "tool_use", "id": "x1", "name": "f", "input": {"k": 1}},
        ],
        "model": body["model"],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": body["usage"],
    }
    assert body["usage"]["output_tokens"] == 11
    cut = await answer("/v1/messages", MESSAGES, b'a({"k', FinishReason.TOKEN_LIMIT)
    assert cut.json["content"][1]["input"] == {}
    assert cut.json["stop_reason"] == "max_tokens"


@pytest.mark.usefixtures("scripted")
async def test_a_message_streams_its_blocks_one_after_the_other() -> None:
    body = MESSAGES | {"stream": True}
    events = events_of(await answer("/v1/messages", body, b'?ab({"k":1}'))
    start, end = events.pop(0), events[-2:]
    assert start["type"] == "message_start"
    assert start["message"]["content"] == []
    assert start["message"]["usage"]["output_tokens"] == 0
    kinds = [
        (event["type"].removeprefix("content_block_"), event["index"],
         (event.get("delta") or event.get("content_block") or {}).get("type"))
        for event in events[:-2]
    ]  # fmt: skip
    assert kinds[:4] == [
        ("start", 0, "thinking"),
        ("delta", 0, "thinking_delta"),
        ("delta", 0, "signature_delta"),
        ("stop", 0, None),
    ]
    assert kinds[4:9] == [
        ("start", 1, "text"),
        ("delta", 1, "text_delta"),
        ("delta", 1, "text_delta"),
        ("stop", 1, None),
        ("start", 2, "tool_use"),
    ]
    assert set(kinds[9:-1]) == {("delta", 2, "input_json_delta")}
    assert kinds[-1] == ("stop", 2, None)
    arguments = "".join(
        event["delta"]["partial_json"]
        for event in events
        if event.get("delta", {}).get("type") == "input_json_delta"
    )
    assert arguments == '{"k":1}'
    assert end[0]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert end[0]["usage"]["output_tokens"] == 11
    assert end[1] == {"type": "message_stop"}


async def test_stop_sequences_are_named() -> None:
    body = MESSAGES | {"stop_sequences": ["END"]}
    message = (await answer("/v1/messages", body, b"abEND", FinishReason.STOP_STRING)).json
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")
    assert message["content"] == [{"type": "text", "text": "ab"}]
    message = (await answer("/v1/messages", body, b"ab")).json
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)


async def test_errors_are_anthropics_on_its_paths_only() -> None:
    app = make_app(FakeEngine(), api_key=("secret",))
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        request = await post(app, path, {}, x_api_key="secret").done()
        assert request.status == 400
        assert request.json["type"] == "error"
        assert request.json["error"]["type"] == "invalid_request_error"
        request = await post(app, path, MESSAGES).done()
        assert (request.status, request.json["error"]["type"]) == (401, "authentication_error")
    request = await post(app, "/v1/responses", INPUT).done()
    assert "type" not in request.json


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_prompt_that_is_too_long_is_said_as_each_api_says_it(path: str) -> None:
    text = "x" * 300
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "input": text}
    request = await post(make_app(FakeEngine()), path, body).done()
    error = request.json["error"]
    assert (request.status, error["n_ctx"]) == (400, 128)
    assert error["n_prompt_tokens"] > 300
    if path == "/v1/messages":
        counts = f"{error['n_prompt_tokens']} tokens > 128 maximum"
        assert error["message"] == f"prompt is too long: {counts}"
        assert error["type"] == "invalid_request_error"
    else:
        assert error["code"] == "context_length_exceeded"
        assert error["type"] == "exceed_context_size_error"


@pytest.mark.parametrize("prefix", ["", "/llm"])
@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1/messages/batches", "not_found_error"),
        ("GET", "/v1/messages/batches/x", "not_found_error"),
        ("GET", "/v1/messages", "not_found_error"),
        ("DELETE", "/v1/messages/count_tokens", "not_found_error"),
        ("POST", "/v1/messages", "request_too_large"),
    ],
)
async def test_every_error_below_its_path_is_anthropics(
    prefix: str, method: str, path: str, kind: str
) -> None:
    app = make_app(FakeEngine(), max_body_bytes=1024, api_prefix=prefix, api_key=("secret",))
    for key, expected in ((b"secret", kind), (b"wrong", "authentication_error")):
        headers = [(b"x-api-key", key)]
        request = await AsgiRequest(app, method, prefix + path, b"x" * 2000, headers).done()
        assert list(request.json) == ["type", "error"]
        assert (request.json["type"], request.json["error"]["type"]) == ("error", expected)
    app.state.gate.phase = Phase.DRAINING
    request = await AsgiRequest(app, method, prefix + path, b"", []).done()
    assert (request.status, request.json["error"]["type"]) == (503, "overloaded_error")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_stream_that_fails_ends_with_an_error_event(path: str) -> None:
    body = MESSAGES | INPUT | {"stream": True}
    if path == "/v1/messages":
        body = MESSAGES | {"stream": True}
    event = events_of(await answer(path, body, b"ab", FinishReason.DECODE_FAILED))[-1]
    assert event["type"] == "error"
    assert "llama_decode failed" in event["error"]["message"]


@pytest.mark.usefixtures("scripted")
async def test_a_response_has_items() -> None:
    body = (await answer("/v1/responses", INPUT, b"?ab({}")).json
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"], body["store"]) == ("response", "completed", False)
    reasoning, message, call = body["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "?"}]
    assert message["content"][0]["text"] == "ab"
    assert (call["call_id"], call["name"], call["arguments"]) == ("call_x1", "f", "{}")
    assert [item["id"].partition("_")[0] for item in body["output"]] == ["rs", "msg", "fc"]
    assert body["usage"]["output_tokens"] == 6
    assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": 1}
    cut = (await answer("/v1/responses", INPUT, b"ab", FinishReason.TOKEN_LIMIT)).json
    assert (cut["status"], cut["output"][-1]["status"]) == ("incomplete", "incomplete")
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.usefixtures("scripted")
async def test_a_response_streams_typed_events() -> None:
    events = events_of(await answer("/responses", INPUT | {"stream": True}, b"?ab({}"))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["id"] for item in done] == [item["id"] for item in added]
    assert events[-1]["response"]["output"] == done
    assert [event["output_index"] for event in events if "output_index" in event] == (
        [0] * 6 + [1] * 7 + [2] * 5
    )
    text = [event for event in events if event["type"] == "response.output_text.delta"]
    assert text[0].keys() == text[1].keys()
    assert all(event["item_id"] == done[1]["id"] for event in text)


async def test_progress_and_timings_are_in_the_events() -> None:
    body = INPUT | {"stream": True, "return_progress": True, "timings_per_token": True}
    events = events_of(await answer("/v1/responses", body, b"ab"))
    progress = [event for event in events if "prompt_progress" in event]
    assert progress
    assert all(event["type"] == "response.in_progress" for event in progress)
    assert [event["type"] for event in events].count("response.created") == 1
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert all("timings" in event for event in deltas)
    assert "timings" in events[-1]


async def test_prompts_are_counted() -> None:
    app = make_app(FakeEngine())
    counted = (await post(app, "/v1/messages/count_tokens", MESSAGES).done()).json
    assert list(counted) == ["input_tokens"]
    for path in ("/responses/input_tokens", "/v1/responses/input_tokens"):
        body = (await post(app, path, {"input": "Hi"}).done()).json
        assert body == {"input_tokens": counted["input_tokens"], "object": "response.input_tokens"}


async def test_control_knows_who_is_running() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    path = "/v1/chat/completions/control"
    chat = {"messages": MESSAGES["messages"], "stream": True}
    running = post(app, "/v1/chat/completions", chat)
    sequence = await engine.submitted()
    sequence.start()
    sequence.tokens(b"a")
    await running.until(lambda request: b"chatcmpl" in request.body)
    word = {"id": running.events[0]["id"], "action": "reasoning_end"}
    refused = {"success": False, "message": "reasoning control not enabled for this completion"}
    unknown = {"success": False, "message": "no active completion for this id"}
    assert (await post(app, path, word).done()).json == refused
    sequence.finish()
    await running.done()
    assert (await post(app, path, word).done()).json == unknown
    for body, param in (({"action": "reasoning_end"}, "id"), (word | {"action": "x"}, "action")):
        request = await post(app, path, body).done()
        assert (request.status, request.json["error"]["param"]) == (400, param)


async def test_control_ends_the_reasoning_of_a_running_completion_that_allows_it() -> None:
    engine = FakeEngine()
    app = make_app(engine, chat_template="{{ messages[0].content }}<think>a</think><think>")
    path = "/v1/chat/completions/control"
    chat = {"messages": MESSAGES["messages"], "stream": True, "reasoning_control": True, "n": 1}
    running = post(app, "/v1/chat/completions", chat)
    sequence = await engine.submitted()
    sequence.start()
    sequence.tokens(b"a")
    await running.until(lambda request: b"chatcmpl" in request.body)
    assert sequence.n_reasoning_ended == 0
    word = {"id": running.events[0]["id"], "action": "reasoning_end"}
    told = await post(app, path, word).done()
    assert (told.status, told.json, sequence.n_reasoning_ended) == (200, {"success": True}, 1)
    sequence.finish()
    await running.done()
    unknown = {"success": False, "message": "no active completion for this id"}
    assert (await post(app, path, word).done()).json == unknown
    assert sequence.n_reasoning_ended == 1


async def test_the_usage_of_a_text_stream_has_its_own_event_where_asked_for() -> None:
    body: dict[str, Any] = {"prompt": "a", "max_tokens": 4, "stream": True}
    plain = (await answer("/v1/completions", body, b"ab")).events
    assert plain[-1]["choices"][0]["finish_reason"] == "stop"
    assert plain[-1]["usage"]["completion_tokens"] == 2
    asked = body | {"stream_options": {"include_usage": True}}
    events = (await answer("/v1/completions", asked, b"ab")).events
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in events[-2]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 2
    assert events[-1]["id"] == events[-2]["id"]
