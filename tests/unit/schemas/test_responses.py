"""OpenAI's Responses request to a chat body."""

from typing import Any

import pytest

from unpaced.http.errors import ApiError
from unpaced.schemas.responses import chat_body_of_responses


def chat(given: Any = "Hi", **body: Any) -> dict[str, Any]:
    return chat_body_of_responses({"input": given} | body)


def test_text_instructions_and_limits() -> None:
    body = chat(
        instructions="Be brief", max_output_tokens=5, temperature=0.2, stream=True, store=True,
        model="m", metadata={"a": "b"}, user="u", previous_response_id=None, seed=3, top_p=None,
    )  # fmt: skip
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Hi"},
        ],
        "max_tokens": 5,
        "temperature": 0.2,
        "stream": True,
        "seed": 3,
    }


def test_items_of_one_turn_become_one_message() -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Dev"}]},
        {"type": "message", "role": "user", "content": "Q"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1",
         "content": [{"type": "output_text", "text": "A", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "two"}]},
        {"role": "assistant", "content": "B"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "C"}]},
    ]  # fmt: skip
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert chat(items)["messages"] == [
        {"role": "developer", "content": [{"type": "text", "text": "Dev"}]},
        {"role": "user", "content": "Q"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "A"}],
            "reasoning_content": "Hm",
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}],
        },
    ]


def test_reasoning_that_only_openai_can_read_is_left_out() -> None:
    items = [
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"role": "user", "content": "Q"},
    ]
    assert chat(items)["messages"] == [{"role": "user", "content": "Q"}]


def test_formats() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    wanted = {"name": "n", "schema": schema, "strict": True}
    assert chat(text={"format": form})["response_format"] == {
        "type": "json_schema",
        "json_schema": wanted,
    }
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {
        "type": "json_object"
    }
    assert "response_format" not in chat(text={"format": {"type": "text"}})
    assert chat(reasoning={"effort": "low"})["reasoning_effort"] == "low"


def test_tools_and_their_choice() -> None:
    tools = [
        {"type": "function", "name": "f", "parameters": {}, "description": None},
        {"type": "function", "name": "g", "parameters": {}, "strict": False},
        {"type": "web_search"},
    ]
    body = chat(tools=tools, tool_choice={"type": "function", "name": "g"})
    assert body["tools"] == [
        {"type": "function", "function": {"strict": True, "name": "f", "parameters": {}}},
        {"type": "function", "function": {"strict": False, "name": "g", "parameters": {}}},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "g"}}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"name": "f"}]}
    body = chat(tools=tools, tool_choice=allowed)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert body["tool_choice"] == "required"
    assert "tools" not in chat(tools=[{"type": "web_search"}])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"n": 2}, "n"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"instructions": 5}, "instructions"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_body_of_responses({"input": "Hi"} | body)
    assert (caught.value.status, caught.value.param) == (400, param)
