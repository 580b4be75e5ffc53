"""What a route answers where it does not answer what was asked."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

ERROR: Final = "Error"
ANTHROPIC_ERROR: Final = "AnthropicError"

MEANINGS: Final[Mapping[int, str]] = {
    400: "Something in the request is wrong: `param` names the field.",
    401: "The server has API keys (--api-key), and the request carries none of them.",
    403: "The Host header is none of this server's names (--allowed-hosts).",
    404: "There is no such thing.",
    408: "The body did not come within --body-timeout.",
    413: "The body is longer than --max-body-bytes.",
    415: "The body is compressed: it must be sent as it is.",
    500: "The engine or the server failed.",
    501: "This server was started without it, or has no such thing.",
    503: "The model is being loaded, the server is stopping, or the queue is full: `Retry-After`.",
}

OF_A_BODY: Final = (400, 408, 413, 415)
OF_A_COMPLETION: Final = (*OF_A_BODY, 500)


class ErrorDetail(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="allow")

    code: int | str = Field(description="the status; below /v1 where OpenAI has one, its word")
    message: str
    type: str
    param: str | None = Field(None, description="the field at fault")


class Error(BaseModel):
    """OpenAI's and llama-server's error object."""

    error: ErrorDetail


class AnthropicError(BaseModel):
    """Anthropic's error object; llama-server's keys stay in it."""

    type: Any = Field(json_schema_extra={"const": "error"})
    error: ErrorDetail


class FeatureDetail(BaseModel):
    """The error as llama-server words it."""

    message: str
    type: str


class FeatureDisabled(BaseModel):
    """What llama-server answers where its tools are off."""

    error: FeatureDetail
