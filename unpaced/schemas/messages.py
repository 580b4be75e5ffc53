"""Anthropic's Messages request to a chat body, as llama-server converts it.

Source: llama.cpp 0c1e57098, tools/server/server-chat.cpp:348
(server_chat_convert_anthropic_to_oai); names and meanings: Anthropic's Messages API.
"""

import re
from typing import Any, Final

from unpaced.http.errors import invalid, invalid_field
from unpaced.schemas.messages_content import convert_message
from unpaced.schemas.reading import object_of, objects_of, refuse, text_of
from unpaced.schemas.sampling import SamplingFields

_DEFAULT_MAX_TOKENS: Final = 4096
PASSED: Final = frozenset(SamplingFields.model_fields) | {
    "model",
    "stream",
    "cache_prompt",
    "cache_salt",
    "id_slot",
    "priority",
    "chat_template_kwargs",
    "sse_ping_interval",
    "reasoning_format",
}
REFUSED: Final = {
    "container": "not supported",
    "context_management": "not supported",
    "mcp_servers": "not supported",
    "n": "not supported",
    "logprobs": "not supported",
}
OFF: Final[tuple[Any, ...]] = (1, False, [], {})
"""Values that ask for none of what is refused."""
# Claude Code puts a stamp in front of its instructions that changes with every request; with it the
# prompt would never be found in a slot's cache. https://github.com/ggml-org/llama.cpp/pull/21793
_STAMP: Final = re.compile(r"\A(x-anthropic-billing-header:.*?cch=).{5}(?=;)", re.DOTALL)


def chat_body_of_messages(body: dict[str, Any]) -> dict[str, Any]:
    """The chat body that asks for the same. Raises: ApiError (400) naming the field."""
    if body.get("messages") is None:
        raise invalid("'messages' is required", param="messages")
    for key, reason in REFUSED.items():
        refuse(body, key, OFF, reason)
    chat = {key: body[key] for key in PASSED if body.get(key) is not None}
    messages = _system_messages(body)
    for i, message in enumerate(objects_of(body, "messages")):
        messages += convert_message(message, f"messages[{i}].")
    chat["messages"] = messages
    max_tokens = body.get("max_tokens")
    chat["max_tokens"] = _DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    if body.get("stop_sequences") is not None:
        chat["stop"] = body["stop_sequences"]
    if body.get("tools") is not None:
        chat["tools"] = [
            _tool(tool, f"tools[{i}].") for i, tool in enumerate(objects_of(body, "tools"))
        ]
    _convert_tool_choice(body, chat)
    _convert_thinking(body, chat)
    _convert_output(body, chat)
    return chat


def _system_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    system = body.get("system")
    if system is None:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": _without_stamp(system)}]
    texts = []
    for i, block in enumerate(objects_of(body, "system")):
        where = f"system[{i}]."
        if block.get("type") != "text":
            raise invalid_field(f"{where}type", "must be text")
        texts.append(_without_stamp(text_of(block, "text", where)))
    return [{"role": "system", "content": "".join(texts)}]


def _without_stamp(text: str) -> str:
    return _STAMP.sub(r"\1fffff", text)


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise invalid_field(f"{where}type", f"tools of type {kind!r} run at Anthropic's only")
    function = {
        "name": text_of(tool, "name", where),
        "description": text_of(tool, "description", where, default=""),
        "parameters": object_of(tool, "input_schema", where),
    }
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _convert_tool_choice(body: dict[str, Any], chat: dict[str, Any]) -> None:
    choice = object_of(body, "tool_choice")
    if not choice:
        return
    kind = choice.get("type")
    if kind in ("auto", "none"):
        chat["tool_choice"] = kind
    elif kind == "any":
        chat["tool_choice"] = "required"
    elif kind == "tool":
        name = text_of(choice, "name", "tool_choice.")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    else:
        raise invalid_field("tool_choice.type", "must be auto, any, tool or none")
    single = choice.get("disable_parallel_tool_use")
    if single is not None:
        if not isinstance(single, bool):
            raise invalid_field("tool_choice.disable_parallel_tool_use", "must be a boolean")
        chat["parallel_tool_calls"] = not single


def _convert_thinking(body: dict[str, Any], chat: dict[str, Any]) -> None:
    """Whether the model reasons first, and for how many tokens at most."""
    thinking = object_of(body, "thinking")
    if not thinking:
        return
    kind = thinking.get("type")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise invalid_field("thinking.type", "must be enabled, adaptive or disabled")
    budget = thinking.get("budget_tokens")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise invalid_field("thinking.budget_tokens", "must be an integer")
    if budget is not None and kind == "enabled":
        if budget < 0:
            raise invalid_field("thinking.budget_tokens", "must not be negative")
        chat["thinking_budget_tokens"] = budget
    chosen = {"enable_thinking": kind != "disabled"}
    chat["chat_template_kwargs"] = chosen | object_of(body, "chat_template_kwargs")


def _convert_output(body: dict[str, Any], chat: dict[str, Any]) -> None:
    config = object_of(body, "output_config")
    if config.get("effort") is not None:
        chat["reasoning_effort"] = text_of(config, "effort", "output_config.")
    form = object_of(config, "format", "output_config.") or object_of(body, "output_format")
    if not form:
        return
    if form.get("type") != "json_schema":
        raise invalid_field("output_config.format.type", "must be json_schema")
    schema = object_of(form, "schema", "output_config.format.")
    chat["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, "strict": True},
    }
