"""Chat requests whose prompts are compared with llama-server's, template by template."""

from typing import Any, Final

_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City"},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}
_NOOP: Final = {"type": "function", "function": {"name": "noop"}}
_ODD: Final = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "é \" <b> & ' 😀",
        "parameters": {
            "type": "object",
            "properties": {
                "x": {"type": "string", "enum": ["é", "<"]},
                "y": {"type": "number", "default": 1.5},
                "z": {"type": "boolean", "default": True, "nullable": None},
            },
        },
    },
}
_USER: Final = {"role": "user", "content": "What is the weather?"}


def _call(number: int, arguments: str = '{"city": "Paris", "days": 2}') -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def _assistant(content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | more


def _tool(number: int, content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call{number:05d}", "content": content} | more


_SYSTEM: Final = {"role": "system", "content": "Be brief."}
_HISTORY: Final = [_USER, _assistant("Sunny.", reasoning_content="I looked."), _USER]

CHAT_CASES: Final[dict[str, dict[str, Any]]] = {
    "user": {"messages": [_USER]},
    "system": {"messages": [_SYSTEM, _USER]},
    "turns": {
        "messages": [
            _SYSTEM, _USER, _assistant("Sunny."), {"role": "user", "content": "And tomorrow?"},
        ]
    },
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, _USER]},
    "parts": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}],
            }
        ]
    },
    "null": {"messages": [{"role": "user", "content": None}]},
    "tools": {"messages": [_USER], "tools": [_WEATHER, _NOOP]},
    "tools_none": {"messages": [_USER], "tools": [_WEATHER], "tool_choice": "none"},
    "call": {
        "messages": [
            _USER,
            _assistant(None, tool_calls=[_call(1)]),
            _tool(1, '{"sun": true}', name="get_weather"),
        ],
        "tools": [_WEATHER],
    },
    "call_text": {
        "messages": [
            _USER,
            _assistant("Let me see.", tool_calls=[_call(1)]),
            _tool(1, "sunny"),
            _assistant("It is sunny."),
            _USER,
        ],
        "tools": [_WEATHER],
    },
    "calls": {
        "messages": [
            _USER,
            _assistant("", tool_calls=[_call(1), _call(2, "{}")]),
            _tool(1, "a"),
            _tool(2, "b"),
        ],
        "tools": [_WEATHER],
    },
    "prefill": {"messages": [_USER, _assistant("It is")]},
    "prefill_reasoning": {
        "messages": [_USER, _assistant("", reasoning_content="Let me think")]
    },
    "prefill_both": {"messages": [_USER, _assistant("It is", reasoning_content="I thought.")]},
    "no_generation": {"messages": [_USER], "add_generation_prompt": False},
    "thinking_off": {
        "messages": [_USER], "chat_template_kwargs": {"enable_thinking": False},
    },
    "thinking_on": {"messages": [_USER], "chat_template_kwargs": {"enable_thinking": True}},
    "effort": {"messages": [_USER], "reasoning_effort": "low"},
    "effort_none": {"messages": [_USER], "reasoning_effort": "none"},
    "history": {"messages": _HISTORY},
    "preserve": {
        "messages": _HISTORY, "chat_template_kwargs": {"preserve_reasoning": True},
    },
    "unicode": {
        "messages": [{"role": "user", "content": "é \" ' \\ \n <b> & 😀"}], "tools": [_ODD],
    },
}  # fmt: skip
