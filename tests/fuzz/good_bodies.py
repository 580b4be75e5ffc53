"""A rich body for every route that takes one: what mutations start from."""

from collections.abc import Mapping
from typing import Any, Final

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1, "maxItems": 2},
        "day": {"type": "string", "format": "date"},
        "either": {"anyOf": [{"type": "boolean"}, {"const": "x"}, {"$ref": "#/$defs/d"}]},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"d": {"type": "number", "exclusiveMinimum": 0}},
}
_FUNCTION: Final[dict[str, Any]] = {
    "name": "weather",
    "description": "of a town",
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["town"],
    },
    "strict": False,
}
_CALL: Final[dict[str, Any]] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"town": "Rome"}'},
}
_COMPLETION: Final[dict[str, Any]] = {
    "prompt": "Once",
    "n_predict": 2,
    "seed": 1,
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "stop": ["\n", "END"],
    "samplers": ["penalties", "top_k", "temperature"],
    "logit_bias": [[5, 1.0], ["a", False]],
    "n_probs": 2,
    "dry_sequence_breakers": ["\n", ":"],
    "response_fields": ["content", "generation_settings/seed"],
    "stream_options": {"include_usage": True},
}
_CHAT: Final[dict[str, Any]] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "me"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "And?"},
    ],
    "max_tokens": 2,
    "seed": 1,
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "chat_template_kwargs": {"enable_thinking": True},
    "logprobs": True,
    "top_logprobs": 2,
}
_CHAT_OF_SCHEMA: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 2,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": _SCHEMA, "strict": True},
    },
    "reasoning_format": "auto",
    "reasoning_effort": "low",
}
_RESPONSES: Final[dict[str, Any]] = {
    "model": "x",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
        {"role": "user", "content": "And?"},
    ],
    "instructions": "Be brief.",
    "max_output_tokens": 2,
    "tools": [{"type": "function", **_FUNCTION}],
    "tool_choice": {"type": "function", "name": "weather"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": _SCHEMA}},
    "reasoning": {"effort": "low"},
}
_MESSAGES: Final[dict[str, Any]] = {
    "model": "x",
    "max_tokens": 2,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"town": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "rain"}],
                },
                {"type": "text", "text": "And?"},
            ],
        },
    ],
    "stop_sequences": ["END"],
    "tools": [
        {
            "name": "weather",
            "description": "of a town",
            "input_schema": _FUNCTION["parameters"],
        }
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "metadata": {"user_id": "me"},
    "output_config": {"effort": "low"},
    "top_k": 5,
}
_GRAMMAR: Final[dict[str, Any]] = {
    "prompt": "a",
    "n_predict": 2,
    "grammar": 'root ::= "a" | [b-d]+ root?',
    "grammar_lazy": True,
    "grammar_triggers": [{"type": 1, "value": "a"}],
    "preserved_tokens": ["<s>"],
}

GOOD_BODIES: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    "completion": (_COMPLETION, {"prompt": "a", "n_predict": 2, "json_schema": _SCHEMA}, _GRAMMAR),
    "chat": (_CHAT, _CHAT_OF_SCHEMA),
    "responses": (_RESPONSES,),
    "messages": (_MESSAGES,),
    "infill": (
        {
            "input_prefix": "def f(",
            "input_suffix": "return 1",
            "input_extra": [{"filename": "a.py", "text": "x = 1"}],
            "prompt": "a",
            "n_predict": 2,
        },
    ),
    "tokenize": ({"content": ["a", 5], "add_special": True, "with_pieces": True},),
    "detokenize": ({"tokens": [1, 2, 3]},),
    "control": ({"id": "chatcmpl-x", "action": "reasoning_end"},),
    "slots": ({"filename": "a.bin"},),
    "other": ({"model": "x", "input": "a", "query": "a", "documents": ["a"]},),
}
"""Bodies by kind of route. Few tokens: most of the time goes into checking."""


def kind_of(path: str) -> str:
    """Which bodies a path takes."""
    if path.endswith(("chat/completions", "/apply-template")) or "/chat/" in path:
        return "control" if path.endswith("/control") else "chat"
    for word in ("responses", "messages", "infill", "detokenize", "tokenize", "slots"):
        if word in path.replace("tokenizer", ""):
            return word
    return "completion" if "completion" in path else "other"
