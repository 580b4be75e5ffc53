"""What a template can do with messages, found out by trying it.

The nine answers are llama-server's `chat_template_caps`; the trials are those of llama.cpp
0c1e57098, common/jinja/caps.cpp (caps_get).
"""

from dataclasses import dataclass, fields
from typing import Any, Final

from unpaced.rendering.environment import CompiledTemplate, TemplateFailure
from unpaced.rendering.tracking import TrackedList, TrackedString, Usage, track, untrack

_MARK: Final = "STRING_MARKER"
_USER: Final = {"role": "user", "content": "User message"}
_TOOLS: Final = [
    {
        "name": "tool",
        "type": "function",
        "function": {
            "name": "tool1",
            "description": "Tool description",
            "parameters": {
                "type": "object",
                "properties": {"arg": {"type": "string", "description": "Arg description"}},
                "required": ["arg"],
            },
        },
    }
]


@dataclass(slots=True)
class Capabilities:
    """llama-server's names and defaults."""

    supports_tools: bool = True
    supports_tool_calls: bool = True
    supports_system_role: bool = True
    supports_parallel_tool_calls: bool = True
    supports_preserve_reasoning: bool = False
    supports_reasoning_effort: bool = False
    supports_string_content: bool = True
    supports_typed_content: bool = False
    supports_object_arguments: bool = False

    def to_json(self) -> dict[str, bool]:
        """By name, in alphabetical order."""
        return {name: getattr(self, name) for name in sorted(f.name for f in fields(self))}


class Trial:
    """One rendering: its text (None if it failed) and what it used."""

    def __init__(
        self,
        template: CompiledTemplate,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        variables: dict[str, Any] | None = None,
    ) -> None:
        self.usage = Usage()
        context = {
            "messages": track(messages, self.usage, "messages"),
            "tools": track(tools or [], self.usage, "tools"),
            "bos_token": "",
            "eos_token": "",
            "add_generation_prompt": True,
        } | {key: track(value, self.usage, key) for key, value in (variables or {}).items()}
        environment = template.environment
        is_string, to_json = environment.tests["string"], environment.filters["tojson"]
        environment.tests["string"] = self._is_string
        environment.filters["tojson"] = lambda value, *args, **kwargs: to_json(
            untrack(value), *args, **kwargs
        )
        self.text: str | None = None
        try:
            self.text = template.render(context)
        except TemplateFailure:
            pass
        finally:
            environment.tests["string"], environment.filters["tojson"] = is_string, to_json

    def used(self, path: str) -> bool:
        """Whether the template looked at the value."""
        return path in self.usage.used

    def _is_string(self, value: Any) -> bool:
        if isinstance(value, TrackedString | TrackedList):
            self.usage.tested_as_string.add(value.path)
        return isinstance(value, str)


def probe(template: CompiledTemplate) -> Capabilities:
    """Try everything. Never fails: a template that cannot be rendered keeps the defaults."""
    caps = Capabilities()
    _probe_content(template, caps)
    trial = Trial(template, [{"role": "system", "content": "System message"}, _USER])
    caps.supports_system_role = trial.used("messages/0/content")
    _probe_tools(template, caps)
    _probe_reasoning(template, caps)
    return caps


def _probe_content(template: CompiledTemplate, caps: Capabilities) -> None:
    path = "messages/0/content"
    trial = Trial(template, [{"role": "user", "content": _MARK}])
    as_list = path in trial.usage.iterated
    caps.supports_typed_content = as_list
    if trial.text is None or (as_list and _MARK not in trial.text):
        caps.supports_string_content = False
    if path in trial.usage.tested_as_string:
        trial = Trial(template, [{"role": "user", "content": []}])
        if path in trial.usage.iterated and trial.text is not None:
            caps.supports_typed_content = True


def _conversation(arguments: Any, n_calls: int) -> list[dict[str, Any]]:
    calls = [
        {
            "id": f"call0000{i + 1}",
            "type": "function",
            "function": {"name": "tool1", "arguments": arguments},
        }
        for i in range(n_calls)
    ]
    return [
        _USER,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "The tool response was 'tool response'"},
        _USER,
    ]


def _probe_tools(template: CompiledTemplate, caps: Capabilities) -> None:
    name, calls = "tools/0/function/name", "messages/1/tool_calls"
    trial = Trial(template, _conversation({"arg": "value"}, 1), tools=_TOOLS)
    if trial.text is not None:
        caps.supports_tools = trial.used(name)
        caps.supports_tool_calls = trial.used(calls)
        caps.supports_object_arguments = trial.used(f"{calls}/0/function/arguments/arg")
    if not caps.supports_object_arguments:
        trial = Trial(template, _conversation('{"arg": "value"}', 1), tools=_TOOLS)
        caps.supports_tools &= trial.text is not None and trial.used(name)
        caps.supports_tool_calls &= trial.text is not None and trial.used(calls)
    arguments: Any = {"arg": "value"} if caps.supports_object_arguments else '{"arg": "value"}'
    trial = Trial(template, _conversation(arguments, 2), tools=_TOOLS)
    caps.supports_parallel_tool_calls = trial.text is not None and trial.used(f"{calls}/1/function")


def _probe_reasoning(template: CompiledTemplate, caps: Capabilities) -> None:
    mark = "<REASONING_CONTENT_PLACEHOLDER>"
    answer = {"role": "assistant", "content": "Assistant message"}
    trial = Trial(
        template,
        [
            _USER,
            answer | {"reasoning_content": mark},
            _USER,
            answer | {"reasoning_content": "Reasoning content"},
            _USER,
        ],
        variables={"enable_thinking": True} | preserve_reasoning(True),
    )
    caps.supports_preserve_reasoning = trial.text is not None and mark in trial.text
    caps.supports_reasoning_effort = not template.names.isdisjoint(reasoning_effort(""))


def preserve_reasoning(enabled: bool) -> dict[str, bool]:
    """The names under which templates ask whether earlier reasoning stays."""
    return {
        "preserve_thinking": enabled,
        "clear_thinking": not enabled,
        "truncate_history_thinking": not enabled,
        "drop_thinking": not enabled,
    }


def reasoning_effort(effort: str) -> dict[str, str]:
    """The names under which templates ask for it."""
    return {"reasoning_effort": effort, "reasoning_strength": effort}
