"""Reasoning that must end, on the demo model: budgets, messages, grammars beside them, control."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.integration.test_api_chat import HELLO, NAMED, TOOLS, chat
from tests.parity.pair import tiny_model
from tests.support.llama_source import llama_source
from tests.support.server import Server, serving

SHOWN = (
    "{% for m in messages %}{{ m.content }}{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}\n{% endfor %}"
)
OPENED = SHOWN + "{% if add_generation_prompt %}<think>\n{% endif %}"
SCHEMA: dict[str, Any] = {"type": "object", "required": ["n"], "additionalProperties": False}
SCHEMA |= {"properties": {"n": {"type": "integer", "maximum": 9}}}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
TAGS: dict[str, Any] = {
    "reasoning_budget_start_tag": "<think>",
    "reasoning_budget_end_tags": ["</think>"],
}


@pytest.fixture(scope="module")
def thinking() -> Iterator[Server]:
    # One token a batch: a text on the cells of the request before is that of a cold prompt.
    with serving("-c", "8192", "-np", "1", "-ub", "1", "--chat-template", OPENED) as running:
        yield running


@pytest.fixture(scope="module")
def may_think() -> Iterator[Server]:
    flags = ("--reasoning-budget", "3", "--reasoning-budget-message", " So:")
    model = ("-m", str(tiny_model("llama-spm", tags=True)), "-c", "1024", "-np", "1")
    with serving(*model, "--chat-template", SHOWN, *flags) as running:
        yield running


def tokens_of(server: Server, text: str) -> list[int]:
    tokens: list[int] = server.post("/tokenize", {"content": text}).json()["tokens"]
    return tokens


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_reasoning_ends_with_its_budget(thinking: Server, budget: int) -> None:
    message = chat(thinking, max_tokens=40, reasoning_budget_tokens=budget)["choices"][0]["message"]
    reasoning = message.get("reasoning_content", "")
    assert len(tokens_of(thinking, reasoning)) <= budget
    assert message["content"]
    free = chat(thinking, max_tokens=40)["choices"][0]["message"]
    assert free["content"] == ""
    assert len(free["reasoning_content"]) > len(reasoning)


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_the_message_comes_before_the_end(thinking: Server, budget: int) -> None:
    asked = {"reasoning_budget_tokens": budget, "reasoning_budget_message": " Enough of this."}
    message = chat(thinking, max_tokens=40, **asked)["choices"][0]["message"]
    assert message["reasoning_content"].endswith("Enough of this.")
    free = chat(thinking, max_tokens=40)["choices"][0]["message"]["reasoning_content"]
    own = message["reasoning_content"].removesuffix("Enough of this.").rstrip()
    assert free.startswith(own)
    assert bool(own) == (budget > 1)  # the prompt's line break is a token of the reasoning
    events = thinking.stream("/v1/chat/completions", messages=HELLO, seed=1, max_tokens=40, **asked)
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    streamed = {
        key: "".join(delta.get(key) or "" for delta in deltas)
        for key in ("reasoning_content", "content")
    }
    assert streamed == {key: message[key] for key in streamed}


def test_a_completion_forces_exactly_the_messages_tokens(thinking: Server) -> None:
    body = TAGS | {"prompt": "Once upon a time", "seed": 3, "n_predict": 40, "return_tokens": True}
    free = thinking.complete(**body)["tokens"]
    begun: dict[str, Any] = {"generation_prompt": "<think>", "reasoning_budget_tokens": 6}
    message = {"reasoning_budget_message": " Enough."}
    tokens = thinking.complete(**body, **begun, **message)["tokens"]
    forced = tokens_of(thinking, " Enough.") + tokens_of(thinking, "</think>")
    assert tokens[:6] == free[:6]
    assert tokens[6 : 6 + len(forced)] == forced
    # Where nothing opens reasoning nothing ends them.
    assert thinking.complete(**body, reasoning_budget_tokens=6, **message)["tokens"] == free


def test_a_forced_token_that_is_banned_is_an_error(thinking: Server) -> None:
    banned = tokens_of(thinking, "</think>")[-1]
    body = TAGS | {"prompt": "a", "reasoning_budget_tokens": 1, "logit_bias": [[banned, False]]}
    response = thinking.post("/completion", body)
    assert response.status_code == 400
    assert "logit_bias" in response.json()["error"]["message"]


def test_a_forced_call_comes_after_the_reasoning(thinking: Server) -> None:
    for extra in ({}, {"reasoning_budget_message": "\n\nA call, then."}):
        answer = chat(
            thinking,
            tools=TOOLS,
            tool_choice=NAMED,
            max_tokens=200,
            reasoning_budget_tokens=5,
            **extra,
        )
        message = answer["choices"][0]["message"]
        assert message["tool_calls"][0]["function"]["name"] == "get_weather"
        assert message["reasoning_content"].endswith("A call, then." if extra else "")
        assert message["reasoning_content"]


@pytest.mark.parametrize(
    "asked",
    [{"response_format": FORMAT}, {"json_schema": SCHEMA}, {"grammar": 'root ::= "{\\"n\\": 4}"'}],
)
def test_a_grammar_holds_after_the_reasoning_and_a_budget_ends_it(
    thinking: Server, asked: dict[str, Any]
) -> None:
    limits = {"reasoning_budget_tokens": 5, "reasoning_budget_message": " {Enough}"}
    message = chat(thinking, max_tokens=60, **limits, **asked)["choices"][0]["message"]
    assert message["reasoning_content"].endswith("{Enough}")
    assert list(json.loads(message["content"])) == ["n"]


def test_each_thought_has_the_command_lines_budget_and_message(may_think: Server) -> None:
    start, end = tokens_of(may_think, "<think>"), tokens_of(may_think, "</think>")
    assert (len(start), len(end)) == (1, 1)
    thought = start * 4 + tokens_of(may_think, " So:") + end
    body = {"max_tokens": 3 * len(thought), "logit_bias": [[start[0], 100]], "verbose": True}
    answer = chat(may_think, **body, return_tokens=True)
    assert answer["__verbose"]["tokens"] == thought * 3
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"].endswith("So:")
    assert message["content"].startswith("<think><think><think><think>")
    # Its own fields win.
    own = {"reasoning_budget_tokens": 1, "reasoning_budget_message": ""}
    answer = chat(may_think, **body, **own, return_tokens=True)
    assert answer["__verbose"]["tokens"][:6] == (start * 2 + end) * 2


def test_a_schema_leaves_room_for_reasoning_that_the_model_begins(may_think: Server) -> None:
    start = tokens_of(may_think, "<think>")
    body = {"max_tokens": 40, "response_format": FORMAT, "temperature": 0}
    likes = chat(may_think, **body, logit_bias=[[start[0], 100]])["choices"][0]["message"]
    assert likes["reasoning_content"].endswith("So:")
    assert likes["content"].lstrip().startswith("{")
    for no in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        answer = chat(may_think, **body, **no, logit_bias=[[start[0], 100]])
        message = answer["choices"][0]["message"]
        assert "reasoning_content" not in message
        assert message["content"].lstrip().startswith("{")


def test_a_forced_call_leaves_room_for_them_too(may_think: Server) -> None:
    start = tokens_of(may_think, "<think>")
    asked = {"tools": TOOLS, "tool_choice": NAMED, "max_tokens": 60, "temperature": 0}
    answer = chat(may_think, **asked, logit_bias=[[start[0], 100]])
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"].endswith("So:")
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"


def test_gpt_oss_writes_a_schemas_json_on_its_channel() -> None:
    template = llama_source() / "models" / "templates" / "openai-gpt-oss-120b.jinja"
    with serving("-c", "1024", "-np", "1", "--chat-template-file", str(template)) as server:
        body = {"response_format": FORMAT, "max_tokens": 100, "verbose": True}
        answer = chat(server, **body)
        written = answer["__verbose"]["content"]
        message = answer["choices"][0]["message"]
        thinks = written.startswith("<|channel|>analysis<|message|>")
        assert thinks or written.startswith("<|channel|>final")
        assert thinks == ("reasoning_content" in message)
        if not thinks:
            assert list(json.loads(message["content"])) == ["n"]
        call = chat(server, tools=TOOLS, tool_choice=NAMED, max_tokens=100, verbose=True)
        assert call["__verbose"]["content"].startswith("<|channel|>")


def test_a_lazy_grammar_begins_with_the_end_of_the_reasoning(may_think: Server) -> None:
    start, end = tokens_of(may_think, "<think>")[0], tokens_of(may_think, "</think>")[0]
    lazy = {
        "grammar": f'root ::= <[{end}]> "{{\\"n\\": 4}}"',
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 0, "value": "</think>", "token": end}],
    }
    body = TAGS | lazy | {"prompt": "a", "n_predict": 40, "logit_bias": [[start, 100]]}
    answer = may_think.complete(**body, reasoning_budget_tokens=2)
    assert answer["content"] == '<think><think><think></think>{"n": 4}'
    assert answer["stop_type"] == "eos"


def test_control_ends_the_reasoning_of_a_running_stream(thinking: Server) -> None:
    body = {"messages": HELLO, "seed": 1, "max_tokens": 3500, "stream": True, "ignore_eos": True}
    body |= {"reasoning_control": True, "reasoning_budget_message": " Fine."}
    path = "/v1/chat/completions/control"
    reasoning, content, told = "", "", None
    with thinking.client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = orjson.loads(line[6:])
            if told is None:
                word = {"id": event["id"], "action": "reasoning_end"}
                told = thinking.post(path, word)
            delta = event["choices"][0]["delta"]
            reasoning += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            if len(content) > 20:
                break
    assert told is not None
    assert (told.status_code, told.json()) == (200, {"success": True})
    assert reasoning.endswith("Fine.")
    thinking.until(lambda: not thinking.post(path, word).json()["success"])
    gone = {"success": False, "message": "no active completion for this id"}
    assert thinking.post(path, word).json() == gone


def test_other_apis_have_the_budget_too(thinking: Server) -> None:
    limits = {"type": "enabled", "budget_tokens": 5}
    body = {"messages": HELLO, "max_tokens": 40, "thinking": limits}
    answer = thinking.complete("/v1/messages", **body)
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["thinking", "text"]
    assert len(tokens_of(thinking, answer["content"][0]["thinking"])) <= 5
    asked = {"thinking_budget_tokens": 5, "reasoning_budget_message": " Enough."}
    answer = thinking.complete("/v1/responses", input="Hi", max_output_tokens=40, **asked)
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message"]
    assert answer["output"][0]["content"][0]["text"].endswith("Enough.")
