"""The body of Anthropic's Messages API."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from unpaced.description.completion_fields import completion_fields
from unpaced.description.shapes import Schema, an_object, array_of, either, nullable, reference
from unpaced.schemas.messages import OFF, PASSED, REFUSED

_STRING: Final[Schema] = {"type": "string"}


class _Block(BaseModel):
    model_config = ConfigDict(extra="allow")


class TextBlock(_Block):
    """Text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(_Block):
    """The model's reasoning of an earlier turn."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(_Block):
    """It is left out: nobody but Anthropic can read it."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(_Block):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] | None = None


class ToolResultBlock(_Block):
    """What came of it."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] | None = None


class AnthropicMessage(BaseModel):
    """One turn. An assistant's may be empty."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant", "system"]
    content: (
        str
        | list[TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock]
        | None
    ) = None


class AnthropicTool(_Block):
    """What the model may call; `input_schema` is a JSON schema."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicToolChoice(_Block):
    """`name`: of the tool, where the type is tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(_Block):
    """Whether the model reasons first, and for how many tokens."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=0)


class OutputFormat(_Block):
    """`schema`: a JSON schema."""

    type: Literal["json_schema"]


class OutputConfig(_Block):
    """How hard to reason, and what the answer must be."""

    effort: str | None = None
    format: OutputFormat | None = None


MODELS: Final = (AnthropicMessage, AnthropicTool, AnthropicToolChoice, Thinking, OutputConfig)


def messages_request() -> Schema:
    """Of /v1/messages and the counting of its tokens."""
    completion = completion_fields()
    fields = {name: completion[name] for name in sorted(PASSED) if name in completion} | {
        "messages": array_of(reference("AnthropicMessage")),
        "max_tokens": completion["max_tokens"],
        "system": nullable(either(_STRING, array_of(reference("TextBlock")))),
        "stop_sequences": completion["stop"],
        "tools": nullable(array_of(reference("AnthropicTool"))),
        "tool_choice": nullable(reference("AnthropicToolChoice")),
        "thinking": nullable(reference("Thinking")),
        "output_config": nullable(reference("OutputConfig")),
        "output_format": nullable(reference("OutputFormat")),
        "chat_template_kwargs": {"type": ["object", "null"]},
    }
    for name in ("metadata", "model", "service_tier"):
        fields[name] = {"description": "read by Anthropic's own machinery only; ignored"}
    for name, reason in REFUSED.items():
        fields[name] = {"enum": [*OFF, None], "description": reason}
    return an_object(fields, required=["messages"])
