"""OpenAI's Responses request to a chat body, as llama-server converts it.

Source: llama.cpp 0c1e57098, tools/server/server-chat.cpp:6
(server_chat_convert_responses_to_chatcmpl); names and meanings: OpenAI's API reference.
"""

from typing import Any, Final

import structlog

from unpaced.http.errors import invalid, invalid_field
from unpaced.schemas.reading import object_of, objects_of, refuse, text_of
from unpaced.schemas.responses_input import convert_input

# Given a value other than these, the answer would not be what the client asked for.
REFUSED: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "previous_response_id": (("",), "responses are not stored; send the whole input"),
    "conversation": ((), "conversations are not stored; send the whole input"),
    "background": ((False,), "not supported"),
    "prompt": ((), "prompt templates are not supported; send instructions and input"),
    "truncation": (("disabled",), "only 'disabled' is supported"),
    "top_logprobs": ((0,), "not supported"),
    "logprobs": ((False,), "not supported"),
    "n": ((1,), "not supported"),
    "n_cmpl": ((1,), "not supported"),
    "n_probs": ((0,), "not supported"),
    "response_format": ((), "use text.format"),
    "echo": ((False,), "not supported"),
}
# What only OpenAI's own machinery reads; an answer is the same with and without.
DROPPED: Final = (
    "include",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "user",
)
_INCLUDED: Final = "message.output_text.logprobs"


def chat_body_of_responses(body: dict[str, Any]) -> dict[str, Any]:
    """The chat body that asks for the same. Raises: ApiError (400) naming the field."""
    if body.get("input") is None:
        raise invalid("'input' is required", param="input")
    for key, (allowed, reason) in REFUSED.items():
        refuse(body, key, allowed, reason)
    include = body.get("include")
    if isinstance(include, list) and _INCLUDED in include:
        raise invalid_field("include", f"{_INCLUDED} is not supported")
    chat = {key: value for key, value in body.items() if value is not None}
    for key in (*REFUSED, *DROPPED, "input", "instructions", "text", "reasoning"):
        chat.pop(key, None)
    messages: list[dict[str, Any]] = []
    if body.get("instructions") is not None:
        messages.append({"role": "system", "content": text_of(body, "instructions")})
    chat["messages"] = messages + convert_input(body["input"])
    if "max_output_tokens" in chat:
        chat["max_tokens"] = chat.pop("max_output_tokens")
    effort = object_of(body, "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    _convert_text(body, chat)
    _convert_tools(body, chat)
    return chat


def _convert_text(body: dict[str, Any], chat: dict[str, Any]) -> None:
    text = object_of(body, "text")
    if text.get("verbosity") not in (None, "medium"):
        raise invalid_field("text.verbosity", "only 'medium' is supported")
    form = object_of(text, "format", "text.")
    kind = form.get("type", "text")
    if kind == "json_schema":
        schema = object_of(form, "schema", "text.format.")
        name = text_of(form, "name", "text.format.", default="output")
        named = {"name": name, "schema": schema, "strict": form.get("strict")}
        chat["response_format"] = {"type": kind, "json_schema": named}
    elif kind == "json_object":
        chat["response_format"] = {"type": kind}
    elif kind != "text":
        raise invalid_field("text.format.type", "must be text, json_object or json_schema")


def _convert_tools(body: dict[str, Any], chat: dict[str, Any]) -> None:
    chat.pop("tools", None)
    tools = function_tools(body)
    choice = chat.pop("tool_choice", None)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = {tool.get("name") for tool in objects_of(choice, "tools", "tool_choice.")}
        tools = [tool for tool in tools if tool["name"] in allowed]
        choice = choice.get("mode", "auto")
    if tools:
        chat["tools"] = [_chat_tool(tool) for tool in tools]
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise invalid_field("tool_choice.type", "must be function or allowed_tools")
        name = text_of(choice, "name", "tool_choice.")
        choice = {"type": "function", "function": {"name": name}}
    if choice is not None:
        chat["tool_choice"] = choice


def function_tools(body: dict[str, Any], *, warn: bool = True) -> list[dict[str, Any]]:
    """The tools that a model can be told of: functions. Others are skipped, as in llama-server."""
    functions = []
    for i, tool in enumerate(objects_of(body, "tools")):
        if tool.get("type") == "function":
            text_of(tool, "name", f"tools[{i}].")
            functions.append(tool)
        elif warn:
            log = structlog.stdlib.get_logger("unpaced.request")
            log.warning("tool skipped", type=str(tool.get("type"))[:100])
    return functions


def _chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": {"strict": True} | function}
