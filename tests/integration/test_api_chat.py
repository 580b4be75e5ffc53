"""Chat on the demo model: streams, prefill, tools, structured output, the openai client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.server import Server, serving

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Tell me a story about a cat."}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 8},
                    "days": {"type": "integer", "minimum": 0, "maximum": 9},
                },
                "required": ["city", "days"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop"}},
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-c", "1024", "-np", "2") as running:
        yield running


def chat(server: Server, **body: Any) -> Any:
    return server.complete("/v1/chat/completions", **({"messages": HELLO, "seed": 1} | body))


def test_a_story_streams_as_it_is_whole(server: Server) -> None:
    whole = chat(server, max_tokens=40)
    events = server.stream("/v1/chat/completions", messages=HELLO, seed=1, max_tokens=40)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": None}
    text = "".join(delta["content"] for delta in deltas[1:-1])
    assert text == whole["choices"][0]["message"]["content"]
    assert len(text) > 40
    assert whole["usage"]["completion_tokens"] == 40


def test_the_answer_goes_on_where_the_client_began_it(server: Server) -> None:
    began = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    body = server.post("/apply-template", {"messages": began}).json()
    assert body["prompt"].endswith("Once upon")
    answer = chat(server, messages=began, max_tokens=4, temperature=0)
    assert answer["choices"][0]["message"]["content"].startswith("Once upon a time")


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ({}, "Once upon a"),
        ({"continue_final_message": True, "add_generation_prompt": False}, " a"),
        (
            {"continue_final_message": True, "add_generation_prompt": False, "echo": True},
            "Once upon a",
        ),
    ],
)
def test_a_stream_repeats_the_beginning_unless_its_continuation_was_asked_for(
    server: Server, asked: dict[str, Any], first: str
) -> None:
    began = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    body = {"messages": began, "max_tokens": 4, "temperature": 0, **asked}
    whole = chat(server, **body)["choices"][0]["message"]["content"]
    assert whole.startswith("Once upon a time")
    events = server.stream("/v1/chat/completions", **body)
    assert events[1]["choices"][0]["delta"] == {"content": first}


def test_the_event_that_completes_a_stop_string_has_timings(server: Server) -> None:
    body = {"messages": HELLO, "max_tokens": 20, "temperature": 0}
    whole = chat(server, **body)["choices"][0]["message"]["content"]
    word = next(word for word in whole.split() if len(word) > 4 and word.isalpha())
    at = whole.index(word)
    events = server.stream("/v1/chat/completions", **body, stop=[word[2:]])
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events]
    assert "".join(pieces) == whole[: at + 2]
    assert ["timings" in event for event in events[-3:]] == [False, pieces[-2] != "", True]


def test_anthropics_answer_does_not_repeat_the_beginning(server: Server) -> None:
    began = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    body = {"messages": began, "max_tokens": 4, "temperature": 0, "model": "any"}
    answer = server.post("/v1/messages", body).json()
    assert answer["content"][0]["text"].startswith(" a time")


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call_fits_its_schema(server: Server, choice: Any, stream: bool) -> None:
    for seed in range(3):
        body = {
            "messages": HELLO,
            "tools": TOOLS,
            "tool_choice": choice,
            "parallel_tool_calls": False,
            "max_tokens": 500,  # white space between the parts is the model's
            "seed": seed,
        }
        if stream:
            events = server.stream("/v1/chat/completions", **body)
            reason = events[-1]["choices"][0]["finish_reason"]
            pieces = [
                call
                for event in events
                for call in event["choices"][0]["delta"].get("tool_calls", [])
            ]
            assert pieces[0]["type"] == "function"
            assert pieces[0]["id"]
            name = pieces[0]["function"]["name"]
            text = "".join(piece["function"].get("arguments", "") for piece in pieces)
            assert len(pieces) > 2 or name == "noop"
        else:
            answer = chat(server, **body)["choices"][0]
            reason = answer["finish_reason"]
            (call,) = answer["message"]["tool_calls"]
            name, text = call["function"]["name"], call["function"]["arguments"]
        assert reason == "tool_calls"
        arguments = json.loads(text)
        if name == "get_weather":
            assert set(arguments) == {"city", "days"}
            assert len(arguments["city"]) <= 8
            assert 0 <= arguments["days"] <= 9
        else:
            assert (name, arguments, choice) == ("noop", {}, "required")


def test_an_empty_schema_of_a_chat_is_any_object(server: Server) -> None:
    """As in llama-server; of /completion it is any value."""
    forms: list[dict[str, Any]] = [
        {"json_schema": {}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        {"response_format": {"type": "json_object"}, "json_schema": {}},
    ]
    for fields in forms:
        answer = chat(server, **fields, max_tokens=1, temperature=2, top_k=0, seed=3)
        assert answer["choices"][0]["message"]["content"].startswith("{"), fields


def test_json_object_takes_the_schema_of_the_other_field(server: Server) -> None:
    fields = {"response_format": {"type": "json_object"}, "json_schema": {"const": {"k": 1}}}
    content = chat(server, **fields, max_tokens=300)["choices"][0]["message"]["content"]
    assert json.loads(content) == {"k": 1}


def test_response_format_holds_in_chat(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = chat(server, response_format=form, max_tokens=300)
    assert 0 <= json.loads(answer["choices"][0]["message"]["content"])["n"] <= 99


def test_choices_are_merged(server: Server) -> None:
    answer = chat(server, n=2, max_tokens=8)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    events = server.stream("/v1/chat/completions", messages=HELLO, n=2, max_tokens=8)
    first: dict[int, Any] = {}
    for event in events:
        choice = event["choices"][0]
        first.setdefault(choice["index"], choice["delta"])
    assert first == {i: {"role": "assistant", "content": None} for i in (0, 1)}


def test_verbose_and_progress(server: Server) -> None:
    answer = chat(server, max_tokens=2, verbose=True)
    assert "story about a cat" in answer["__verbose"]["prompt"]
    events = server.stream(
        "/v1/chat/completions", messages=HELLO, max_tokens=2, return_progress=True
    )
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert progress[-1]["processed"] == progress[-1]["total"]
    role = {"role": "assistant", "content": None}
    assert events[0]["choices"][0]["delta"] == role


def test_the_openai_client(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    create: Any = client.chat.completions.create
    arguments: dict[str, Any] = {"model": "demo", "messages": HELLO, "max_tokens": 24, "seed": 7}
    whole = create(**arguments)
    stream = create(**arguments, stream=True, stream_options={"include_usage": True})
    text = ""
    usage = None
    for chunk in stream:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content
    assert usage is not None and usage.completion_tokens == 24
    called = create(**(arguments | {"max_tokens": 200}), tools=TOOLS, tool_choice="required")
    calls = called.choices[0].message.tool_calls
    assert calls is not None and json.loads(calls[0].function.arguments) is not None
    with pytest.raises(openai.BadRequestError, match="messages"):
        create(model="demo", messages=[{"role": "user"}])
