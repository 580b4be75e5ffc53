"""The fields of a chat request's body, beyond those of a completion."""

from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

from unpaced.description.completion_fields import completion_fields
from unpaced.description.shapes import Schema, an_object, array_of, either, nullable, reference
from unpaced.values.reasoning_format import ReasoningFormat

_BUDGET: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": -1,
    "maximum": 2**31 - 1,
    "description": "tokens of reasoning; -1: what --reasoning-budget says",
}
_OF_COMPLETIONS_ALONE: Final = frozenset({"prompt", "n_probs", "logprobs"})


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: str


class FunctionCall(BaseModel):
    """What was called."""

    name: str
    arguments: Any
    """JSON text; an object too is taken."""


class ToolCall(BaseModel):
    """A call in an assistant's message."""

    type: Literal["function"]
    function: FunctionCall
    id: str | None = None


class ChatMessage(BaseModel):
    """One turn. An assistant's may lack `content` where it has `tool_calls`."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(BaseModel):
    """`parameters`: a JSON schema. `strict`: arguments must fit it, or the request is refused."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    """What the model may call."""

    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    """Its name."""

    name: str


class NamedTool(BaseModel):
    """The one tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


MODELS: Final = (ChatMessage, Tool, NamedTool)


def shared_fields() -> dict[str, Schema]:
    """Those that /v1/responses takes too."""
    completion = {
        name: schema
        for name, schema in completion_fields().items()
        if name not in _OF_COMPLETIONS_ALONE
    }
    return completion | {
        "parallel_tool_calls": {"type": ["boolean", "null"]},
        "chat_template_kwargs": {
            "type": ["object", "null"],
            "properties": {"enable_thinking": {"type": ["boolean", "null"]}},
            "description": "variables of the template",
        },
        "reasoning_effort": {"type": ["string", "null"], "description": "none: no reasoning"},
        "reasoning_format": {"enum": [*get_args(ReasoningFormat), None]},
        "reasoning_budget_tokens": _BUDGET,
        "thinking_budget_tokens": _BUDGET,
        "reasoning_control": {"type": ["boolean", "null"]},
        "add_generation_prompt": {"type": ["boolean", "null"]},
        "continue_final_message": {"enum": [True, False, "content", "reasoning_content", None]},
    }


def chat_request() -> Schema:
    """Of /v1/chat/completions, /apply-template and the counting of tokens."""
    fields = shared_fields() | {
        "messages": array_of(reference("ChatMessage")),
        "tools": nullable(array_of(reference("Tool"))),
        "tool_choice": nullable(
            either({"enum": ["auto", "none", "required"]}, reference("NamedTool"))
        ),
        "logprobs": {"type": ["boolean", "null"]},
        "top_logprobs": {
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "needs `logprobs`; without it 20",
        },
    }
    return an_object(fields, required=["messages"])
