"""Anthropic's request to a chat body."""

from typing import Any

import pytest

from unpaced.http.errors import ApiError
from unpaced.schemas.messages import chat_body_of_messages

HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]


def chat(**body: Any) -> dict[str, Any]:
    return chat_body_of_messages({"messages": HI} | body)


def test_a_plain_message() -> None:
    plain = {"model": "x", "messages": HI, "max_tokens": 4096}
    assert chat(model="x", metadata={"user_id": "u"}) == plain
    body = chat(max_tokens=5, temperature=0.5, top_k=3, stream=True, stop_sequences=["a"], seed=4)
    assert body == {
        "messages": HI, "max_tokens": 5, "temperature": 0.5, "top_k": 3, "stream": True,
        "stop": ["a"], "seed": 4,
    }  # fmt: skip


def test_system_blocks_are_one_message_without_the_changing_stamp() -> None:
    stamp = "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You are"
    blocks = [{"type": "text", "text": stamp}, {"type": "text", "text": " here"}]
    system = {"role": "system", "content": stamp.replace("a5145", "fffff") + " here"}
    assert chat(system=blocks)["messages"] == [system, *HI]
    assert chat(system="cch=a5145;")["messages"][0]["content"] == "cch=a5145;"


def test_a_turn_with_reasoning_text_and_a_call_and_its_results() -> None:
    messages = [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Look", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "a", "is_error": True},
                {"type": "tool_result", "tool_use_id": "t2", "content": [
                    {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
                {"type": "tool_result", "tool_use_id": "t3"},
                {"type": "text", "text": "Go on"},
            ],
        },
    ]  # fmt: skip
    call = {"id": "t1", "type": "function", "function": {"name": "ls", "arguments": '{"p":"."}'}}
    assert chat(messages=messages)["messages"] == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Look"}],
            "tool_calls": [call],
            "reasoning_content": "Hm",
        },
        {"role": "user", "content": [{"type": "text", "text": "Go on"}]},
        {"role": "tool", "tool_call_id": "t1", "content": "a"},
        {"role": "tool", "tool_call_id": "t2", "content": "bc"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
    ]


def test_pictures_are_passed_on_to_be_refused_by_the_chat() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA"}
    image = {"type": "image", "source": source}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    messages = [{"role": "user", "content": [image]}, {"role": "user", "content": [result]}]
    assert chat(messages=messages)["messages"] == [
        {"role": "user", "content": [part]},
        {"role": "tool", "tool_call_id": "t", "content": [part]},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            {
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_tools_and_their_choice(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    tools = [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]
    body = chat(tools=tools, tool_choice=choice, max_tokens=1)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    asked = {"tools": [{"type": "function", "function": function}]}
    assert body == {"messages": HI, "max_tokens": 1} | asked | expected


def test_thinking_and_output_format() -> None:
    assert chat(thinking={"type": "disabled"})["chat_template_kwargs"] == {"enable_thinking": False}
    thinking = {"type": "enabled", "budget_tokens": 50}
    assert chat(thinking=thinking)["chat_template_kwargs"] == {"enable_thinking": True}
    assert chat(thinking=thinking)["thinking_budget_tokens"] == 50
    assert "thinking_budget_tokens" not in chat(thinking={**thinking, "type": "adaptive"})
    schema = {"type": "object"}
    form = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    body = chat(output_config=form)
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert body["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [1]}, "messages[0]"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        ({"system": 5}, "system"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": -5}}, "thinking.budget_tokens"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"n": 2}, "n"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**body)
    assert (caught.value.status, caught.value.param) == (400, param)
