"""The `input` of OpenAI's Responses API to chat messages.

Items that one assistant turn is made of (its reasoning, its text, its calls) become one message.
Source: llama.cpp 0c1e57098, tools/server/server-chat.cpp:34.
"""

from typing import Any

from unpaced.http.errors import invalid, invalid_field
from unpaced.schemas.reading import all_objects, objects_of, text_of


def convert_input(value: Any) -> list[dict[str, Any]]:
    """Chat messages of a string or of a list of items. Raises: ApiError (400) naming the item."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise invalid("'input' must be a string or array of objects", param="input")
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(all_objects(value, "input")):
        _add_item(messages, item, f"input[{i}].")
    return messages


def _add_item(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(messages, item, where)
        case "function_call":
            call = {
                "id": text_of(item, "call_id", where),
                "type": "function",
                "function": {
                    "name": text_of(item, "name", where),
                    "arguments": text_of(item, "arguments", where),
                },
            }
            _assistant(messages).setdefault("tool_calls", []).append(call)
        case "function_call_output":
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": text_of(item, "call_id", where),
                    "content": _content(item, "output", where),
                }
            )
        case "reasoning":
            reasoning = _reasoning(item, where)
            if reasoning:
                turn = _assistant(messages)
                turn["reasoning_content"] = turn.get("reasoning_content", "") + reasoning
        case kind:
            raise invalid_field(f"{where}type", f"items of type {kind!r} are not supported")


def _add_message(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    role = text_of(item, "role", where)
    if role not in ("user", "system", "developer", "assistant"):
        raise invalid_field(f"{where}role", "must be user, assistant, system or developer")
    content = _content(item, "content", where)
    if role != "assistant":
        messages.append({"role": role, "content": content})
        return
    turn = _assistant(messages)
    earlier = turn["content"]
    if not earlier:
        turn["content"] = content
    else:
        turn["content"] = _parts(earlier) + _parts(content)


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant turn that the conversation has come to; a new one if it is another's turn."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _content(item: dict[str, Any], key: str, where: str) -> Any:
    """Text, or chat content parts."""
    value = item.get(key)
    if isinstance(value, str):
        return value
    if value is None:
        raise invalid_field(where + key, "is required")
    parts = objects_of(item, key, where)
    return [_part(part, f"{where}{key}[{i}].") for i, part in enumerate(parts)]


def _part(part: dict[str, Any], where: str) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": text_of(part, "text", where)}
        case "refusal":
            return {"type": "text", "text": text_of(part, "refusal", where)}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": text_of(part, "image_url", where)}}
        case kind:
            raise invalid_field(
                f"{where}type", f"content of type {kind!r} is not supported; text is"
            )


def _reasoning(item: dict[str, Any], where: str) -> str:
    """A reasoning item's own text, or its summary; empty where all of it is encrypted."""
    texts = objects_of(item, "content", where) or objects_of(item, "summary", where)
    return "".join(text_of(part, "text", where) for part in texts)
