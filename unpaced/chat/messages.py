"""The `messages` of a chat request, checked and brought into the form that templates read."""

from typing import Any

import orjson

from unpaced.http.errors import invalid
from unpaced.values.json_values import json_type


def read_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Messages with string content, or a list of text parts. Raises: ApiError (400)."""
    if "messages" not in body:
        raise invalid("'messages' is required", param="messages")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise invalid("Expected 'messages' to be an array", param="messages")
    return [_read_message(message, i) for i, message in enumerate(messages)]


def _read_message(message: Any, index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise invalid(f"{where}: expected an object, but got {json_type(message)}", param=where)
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid(f"{where}: 'role' must be a string", param=f"{where}.role")
    has_calls = message.get("tool_calls") is not None
    if role != "assistant" and "content" not in message:
        raise invalid(
            f"{where}: All non-assistant messages must contain 'content'", param=f"{where}.content"
        )
    if role == "assistant" and "content" not in message and not has_calls:
        raise invalid(
            f"{where}: Assistant message must contain either 'content' or 'tool_calls'!",
            param=f"{where}.content",
        )
    read: dict[str, Any] = {"role": role, "content": _read_content(message.get("content"), where)}
    for key, name in (
        ("reasoning_content", "reasoning_content"),
        ("name", "name"),
        ("tool_call_id", "tool_call_id"),
    ):
        value = message.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise invalid(
                f"{where}: '{name}' must be a string, but is {json_type(value)}",
                param=f"{where}.{name}",
            )
        if value:
            read[name] = value
    if has_calls:
        calls = _read_tool_calls(message["tool_calls"], where)
        if calls:
            read["tool_calls"] = calls
    return read


def _read_content(content: Any, where: str) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    where = f"{where}.content"
    if not isinstance(content, list):
        raise invalid(f"{where}: Expected 'content' to be a string or an array", param=where)
    parts = []
    for i, part in enumerate(content):
        at = f"{where}[{i}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_audio", "input_video", "video_url"):
            medium = {"image_url": "image", "input_audio": "audio"}.get(kind, "video")
            raise invalid(f"{at}: {medium} input is not supported", param=at)
        if kind != "text":
            raise invalid(f"{at}: unsupported content[].type", param=at)
        text = part.get("text")
        if not isinstance(text, str):
            raise invalid(f"{at}: 'text' must be a string", param=f"{at}.text")
        parts.append({"type": "text", "text": text})
    return parts or ""


def _read_tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    where = f"{where}.tool_calls"
    if not isinstance(calls, list):
        raise invalid(f"{where}: must be an array, but is {json_type(calls)}", param=where)
    return [_read_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _read_tool_call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise invalid(f"{where}: must be an object, but is {json_type(call)}", param=where)
    if call.get("type") != "function":
        raise invalid(f"{where}: 'type' must be \"function\"", param=f"{where}.type")
    function = call.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{where}: 'function' must be an object", param=f"{where}.function")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise invalid(f"{where}: 'name' must be a string", param=f"{where}.function.name")
    if arguments is None:
        raise invalid(f"{where}: 'arguments' is missing", param=f"{where}.function.arguments")
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments).decode()
    read = {"type": "function", "function": {"name": name, "arguments": arguments}}
    call_id = call.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise invalid(f"{where}: 'id' must be a string", param=f"{where}.id")
    if call_id:
        read["id"] = call_id
    return read
