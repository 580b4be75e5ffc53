"""What OpenAI's Responses API and Anthropic's Messages API answer."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from unpaced.completion.timings import Timings
from unpaced.description.shapes import Schema, later, of_value
from unpaced.writers.response_object import (
    call_item,
    message_item,
    reasoning_item,
    usage_object,
)


class IncompleteDetails(BaseModel):
    """Why it ended early."""

    reason: str


class ResponsesObject(BaseModel):
    """OpenAI's response; fields of the request are repeated."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete"]
    background: Literal[False]
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: Any
    model: str
    output: list[Any] = Field(
        json_schema_extra={
            "items": {
                "anyOf": [
                    later("ReasoningItem"),
                    later("MessageItem"),
                    later("FunctionCallItem"),
                ]
            }
        }
    )
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]
    usage: Any = Field(json_schema_extra={"anyOf": [later("ResponsesUsage"), {"type": "null"}]})


class ResponsesEvent(BaseModel):
    """An event of its stream; what else it holds depends on its type."""

    model_config = ConfigDict(extra="allow")

    type: str
    sequence_number: int


class InputTokens(BaseModel):
    """How many tokens a prompt has."""

    input_tokens: int
    object: Literal["response.input_tokens"]


class AnswerBlock(BaseModel):
    """A piece of the model's turn: text, reasoning or a call."""

    type: Literal["text", "thinking", "tool_use"]
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class AnthropicUsage(BaseModel):
    """Tokens."""

    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    input_tokens: int
    output_tokens: int


class MessageObject(BaseModel):
    """Anthropic's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[AnswerBlock]
    model: str
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: AnthropicUsage


class MessageEvent(BaseModel):
    """An event of its stream; what else it holds depends on its type."""

    model_config = ConfigDict(extra="allow")

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
    ]


class CountedTokens(BaseModel):
    """How many tokens a message's prompt has."""

    input_tokens: int


MODELS: Final = (
    *(ResponsesObject, ResponsesEvent, InputTokens),
    *(MessageObject, MessageEvent, CountedTokens),
)


def schemas() -> dict[str, Schema]:
    """Of objects that code puts together: an example of each tells."""
    return {
        "ResponsesUsage": of_value(usage_object(Timings(), 0)),
        "ReasoningItem": of_value(reasoning_item("", "", "")),
        "MessageItem": of_value(message_item("", "", "")),
        "FunctionCallItem": of_value(call_item("", "", "", "")),
    }
