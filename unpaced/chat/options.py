"""The fields of a chat request that say how its prompt is made and its answer read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from unpaced.http.errors import invalid, invalid_field
from unpaced.values.json_values import json_type
from unpaced.values.reasoning_format import ReasoningFormat

if TYPE_CHECKING:
    from unpaced.chat.templates import TemplateFacts
    from unpaced.settings import Settings

Continuation = Literal["", "content", "reasoning"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """`continuation`: which part of the last message the answer goes on with, if any.

    `streams_prefill`: a stream begins with that part. A whole message always holds it.

    `reasoning_budget` is in tokens, -1: any number; `budget_message` comes where it ends the
    reasoning. With `reasoning_control` it may be ended from outside.
    """

    variables: dict[str, Any]
    enable_thinking: bool
    reasoning_format: ReasoningFormat
    add_generation_prompt: bool
    continuation: Continuation
    streams_prefill: bool
    reasoning_budget: int
    budget_message: str
    reasoning_control: bool


def read_options(
    body: dict[str, Any],
    messages: list[dict[str, Any]],
    settings: "Settings",
    facts: "TemplateFacts",
) -> ChatOptions:
    """Check the fields and put the server's defaults in. Raises: ApiError (400)."""
    variables, enable_thinking = _read_variables(body, settings, facts)
    continuation, add_generation_prompt = _read_continuation(body, messages, settings)
    return ChatOptions(
        variables=variables,
        enable_thinking=enable_thinking,
        reasoning_format=_read_format(body, settings),
        add_generation_prompt=add_generation_prompt,
        continuation=continuation,
        streams_prefill=bool(_switch(body, "echo")) or not body.get("continue_final_message"),
        reasoning_budget=_read_budget(body, settings),
        budget_message=_read_message(body, settings),
        reasoning_control=bool(_switch(body, "reasoning_control")),
    )


def _read_budget(body: dict[str, Any], settings: "Settings") -> int:
    found = []
    for field in ("reasoning_budget_tokens", "thinking_budget_tokens"):
        value = body.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**31:
            raise invalid_field(field, "must be an integer from -1 on")
        found.append(value)
    budget = found[0] if found else -1
    return settings.reasoning_budget if budget == -1 else budget


def _read_message(body: dict[str, Any], settings: "Settings") -> str:
    message = body.get("reasoning_budget_message")
    if message is None:
        return settings.reasoning_budget_message
    if not isinstance(message, str):
        raise invalid_field(
            "reasoning_budget_message", f"type must be string, but is {json_type(message)}"
        )
    return message


def _read_variables(
    body: dict[str, Any], settings: "Settings", facts: "TemplateFacts"
) -> tuple[dict[str, Any], bool]:
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise invalid_field(
            "chat_template_kwargs", f"type must be object, but is {json_type(kwargs)}"
        )
    variables = settings.template_variables() | (kwargs or {})
    enabled = settings.reasoning != "off" and facts.reasoning is not None
    asked = variables.get("enable_thinking")
    if asked is not None:
        if not isinstance(asked, bool):
            raise invalid(
                f'invalid type for "enable_thinking" (expected boolean, got {json_type(asked)})',
                param="chat_template_kwargs",
            )
        enabled = asked
    effort = body.get("reasoning_effort")
    if effort is not None:
        if not isinstance(effort, str):
            raise invalid_field(
                "reasoning_effort", f"type must be string, but is {json_type(effort)}"
            )
        if effort == "none":
            enabled = False
            variables = {
                name: value
                for name, value in variables.items()
                if name not in ("reasoning_effort", "enable_thinking")
            }
        elif effort:
            variables["reasoning_effort"] = effort
    return variables, enabled


def _read_format(body: dict[str, Any], settings: "Settings") -> ReasoningFormat:
    name = body.get("reasoning_format")
    if name is None:
        return settings.reasoning_format
    if name not in get_args(ReasoningFormat):
        raise invalid_field("reasoning_format", f"Unknown reasoning format: {name}")
    return cast("ReasoningFormat", name)


def _read_continuation(
    body: dict[str, Any], messages: list[dict[str, Any]], settings: "Settings"
) -> tuple[Continuation, bool]:
    add = _switch(body, "add_generation_prompt")
    add = True if add is None else add
    wanted = body.get("continue_final_message")
    if wanted not in (None, True, False, "content", "reasoning_content"):
        raise invalid_field(
            "continue_final_message", 'must be a boolean, "content" or "reasoning_content"'
        )
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if not wanted:
        if last is None or not settings.prefill_assistant:
            return "", add
        if len(messages) > 1 and messages[-2]["role"] == "assistant":
            raise invalid(
                "Cannot have 2 or more assistant messages at the end of the list.",
                param="messages",
            )
        wanted, add = True, False
    if add:
        raise invalid(
            "Cannot set both add_generation_prompt and continue_final_message to true.",
            param="continue_final_message",
        )
    if last is None:
        raise invalid(
            "continue_final_message needs an assistant message at the end of the list.",
            param="continue_final_message",
        )
    if "tool_calls" in last:
        raise invalid(
            "Cannot continue an assistant message that contains tool calls.", param="messages"
        )
    if wanted == "content":
        return "content", False
    if wanted == "reasoning_content" or (last.get("reasoning_content") and not last["content"]):
        return "reasoning", False
    return "content", False


def _switch(body: dict[str, Any], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid_field(name, f"type must be boolean, but is {json_type(value)}")
    return value
