"""One message of Anthropic's Messages API to chat messages.

Source: llama.cpp 0c1e57098, tools/server/server-chat.cpp:383.
"""

from typing import Any

import orjson

from unpaced.http.errors import invalid_field
from unpaced.schemas.reading import object_of, objects_of, text_of


def convert_message(message: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The chat messages of one message: its text and calls, then one for each tool result.

    Raises: ApiError (400) naming the field; `where` is the message's path with a dot.
    """
    role = text_of(message, "role", where)
    if role not in ("user", "assistant", "system"):
        raise invalid_field(f"{where}role", "must be user or assistant")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if content is None:
        if role == "assistant":
            return []  # as llama-server: a turn of which nothing is left
        raise invalid_field(f"{where}content", "is required")
    return _convert_blocks(role, objects_of(message, "content", where), where)


def _convert_blocks(role: str, blocks: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for i, block in enumerate(blocks):
        at = f"{where}content[{i}]."
        match block.get("type"):
            case "text" | "image":
                parts.append(_part(block, at))
            case "thinking":
                reasoning.append(text_of(block, "thinking", at))
            case "redacted_thinking":
                pass  # nobody but Anthropic can read it
            case "tool_use":
                calls.append(_call(block, at))
            case "tool_result":
                results.append(_result(block, at))
            case kind:
                raise invalid_field(f"{at}type", f"content blocks of type {kind!r} not supported")
    converted: dict[str, Any] = {"role": role, "content": parts or ""}
    if calls:
        converted["tool_calls"] = calls
    if reasoning:
        converted["reasoning_content"] = "".join(reasoning)
    if not results or parts or calls or reasoning:
        return [converted, *results]
    return results


def _part(block: dict[str, Any], where: str) -> dict[str, Any]:
    if block.get("type") == "text":
        return {"type": "text", "text": text_of(block, "text", where)}
    source = object_of(block, "source", where)
    if source.get("type") == "base64":
        kind = text_of(source, "media_type", f"{where}source.", default="image/jpeg")
        url = f"data:{kind};base64,{text_of(source, 'data', f'{where}source.')}"
    else:
        url = text_of(source, "url", f"{where}source.")
    return {"type": "image_url", "image_url": {"url": url}}


def _call(block: dict[str, Any], where: str) -> dict[str, Any]:
    arguments = orjson.dumps(object_of(block, "input", where)).decode()
    return {
        "id": text_of(block, "id", where),
        "type": "function",
        "function": {"name": text_of(block, "name", where), "arguments": arguments},
    }


def _result(block: dict[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    if content is None:
        content = ""
    elif not isinstance(content, str):
        content = _result_parts(objects_of(block, "content", where), where)
    return {
        "role": "tool",
        "tool_call_id": text_of(block, "tool_use_id", where),
        "content": content,
    }


def _result_parts(blocks: list[dict[str, Any]], where: str) -> str | list[dict[str, Any]]:
    """Text alone becomes one string, which every chat template can show."""
    parts = []
    for i, block in enumerate(blocks):
        at = f"{where}content[{i}]."
        if block.get("type") not in ("text", "image"):
            raise invalid_field(f"{at}type", "must be text or image")
        parts.append(_part(block, at))
    if any(part["type"] != "text" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)
