"""The body of OpenAI's Responses API."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from unpaced.description.chat_fields import shared_fields
from unpaced.description.shapes import Schema, an_object, array_of, either, nullable, reference
from unpaced.schemas.responses import DROPPED, REFUSED

_STRING: Final[Schema] = {"type": "string"}


class InputText(BaseModel):
    """A part of a message; of an assistant's it is `output_text`."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class Refusal(BaseModel):
    """What the model would not do."""

    type: Literal["refusal"]
    refusal: str


class InputMessage(BaseModel):
    """A turn of the conversation."""

    model_config = ConfigDict(extra="allow")

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[InputText | Refusal]


class InputCall(BaseModel):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class InputCallOutput(BaseModel):
    """What came of it."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[InputText | Refusal]


class SummaryText(BaseModel):
    """Reasoning, as text."""

    model_config = ConfigDict(extra="allow")

    text: str


class InputReasoning(BaseModel):
    """The model's reasoning before a turn."""

    type: Literal["reasoning"]
    content: list[SummaryText] | None = None
    summary: list[SummaryText] | None = None


class ResponsesTool(BaseModel):
    """A function; tools of other types are left out."""

    model_config = ConfigDict(extra="allow")

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChosenTool(BaseModel):
    """A function, or those that are allowed."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function", "allowed_tools"]
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


class TextFormat(BaseModel):
    """What the answer must be."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    strict: bool | None = None


class TextConfig(BaseModel):
    """`format.schema`: a JSON schema."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


MODELS: Final = (
    *(InputMessage, InputCall, InputCallOutput, InputReasoning),
    *(ResponsesTool, ChosenTool, TextConfig),
)


def responses_request() -> Schema:
    """Of /v1/responses and the counting of its tokens."""
    items = [reference(item.__name__) for item in MODELS[:4]]
    effort: Schema = {"type": "object", "properties": {"effort": {"type": ["string", "null"]}}}
    fields = shared_fields() | {
        "input": either(_STRING, array_of(either(*items))),
        "instructions": nullable(_STRING),
        "max_output_tokens": {"type": ["integer", "null"], "minimum": -1, "maximum": 2**31 - 1},
        "text": nullable(reference("TextConfig")),
        "reasoning": nullable(effort),
        "tools": nullable(array_of(reference("ResponsesTool"))),
        "tool_choice": nullable(
            either({"enum": ["auto", "none", "required"]}, reference("ChosenTool"))
        ),
    }
    for name in DROPPED:
        fields[name] = {"description": "read by OpenAI's own machinery only; ignored"}
    for name, (allowed, reason) in REFUSED.items():
        fields[name] = {"enum": [*allowed, None], "description": reason}
    return an_object(fields, required=["input"])
