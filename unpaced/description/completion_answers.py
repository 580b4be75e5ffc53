"""What /completion, /v1/completions and /v1/chat/completions answer."""

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from engine_ext import SamplingParams
from unpaced.completion.timings import Timings as _Timings
from unpaced.description.shapes import Schema, later, of_value
from unpaced.request.effective_params import EffectiveParams
from unpaced.writers.openai import usage


class TokenProbs(BaseModel):
    """A token; `logprob` and `top_logprobs`, or with `post_sampling_probs` the others."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | None = None
    prob: float | None = None
    top_logprobs: "list[TokenProbs] | None" = None
    top_probs: "list[TokenProbs] | None" = None


class PromptProgress(BaseModel):
    """With `return_progress`: tokens, and milliseconds so far."""

    total: int
    cache: int
    processed: int
    time_ms: int


class _Timed(BaseModel):
    timings: Any = Field(None, json_schema_extra=later("Timings"))


class Completion(_Timed):
    """llama-server's completion."""

    index: int
    content: str
    tokens: list[int] = Field(description="with `return_tokens`, else empty")
    id_slot: int
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: Any = Field(json_schema_extra=later("EffectiveParams"))
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: Literal["none", "eos", "word", "limit"]
    stopping_word: str
    tokens_cached: int
    completion_probabilities: list[TokenProbs] | None = None


class CompletionChunk(_Timed):
    """An event of a stream; the last one is a `Completion` whose content is what was held back."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[TokenProbs] | None = None
    prompt_progress: PromptProgress | None = None


class TextLogprobs(BaseModel):
    """llama-server's `content`, and OpenAI's four lists where `logprobs` asked for them."""

    content: list[TokenProbs] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int] | None = None


class TextChoice(BaseModel):
    """One answer, or a piece of it."""

    text: str
    index: int
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(_Timed):
    """OpenAI's text completion, whole or an event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Any = Field(None, json_schema_extra=later("Usage"))
    prompt_progress: PromptProgress | None = None
    verbose: Any = Field(None, alias="__verbose", description="with `verbose`: llama-server's own")


class ChatLogprobs(BaseModel):
    """Of the answer's tokens."""

    content: list[TokenProbs]


class CalledFunction(BaseModel):
    """`arguments`: JSON text."""

    name: str | None = None
    arguments: str | None = None


class AnswerCall(BaseModel):
    """A call that the model makes; in a stream its pieces, by `index`."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction | None = None


class AnswerMessage(BaseModel):
    """The model's turn."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[AnswerCall] | None = None


class AnswerDelta(BaseModel):
    """What an event adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[AnswerCall] | None = None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: ChatLogprobs | None = None


class ChatChunkChoice(BaseModel):
    """A piece of one answer."""

    index: int
    delta: AnswerDelta
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    logprobs: ChatLogprobs | None = None


class _Chat(_Timed):
    id: str
    created: int
    model: str
    system_fingerprint: str
    verbose: Any = Field(None, alias="__verbose", description="with `verbose`: llama-server's own")


class ChatCompletion(_Chat):
    """OpenAI's chat completion."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Any = Field(json_schema_extra=later("Usage"))


class ChatCompletionChunk(_Chat):
    """An event of its stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Any = Field(None, json_schema_extra=later("Usage"))
    prompt_progress: PromptProgress | None = None


MODELS: Final = (
    *(Completion, CompletionChunk, TextCompletion, ChatCompletion, ChatCompletionChunk),
)


def schemas() -> dict[str, Schema]:
    """Of objects that code puts together: an example of each tells."""
    entry = of_value({"token": 1, "bias": 0.5}, bias={"type": ["number", "null"]})
    strings: Schema = {"type": "array", "items": {"type": "string"}}
    settings = of_value(
        EffectiveParams(SamplingParams()).to_json(),
        logit_bias={"type": "array", "items": entry},
        stop=strings,
        preserved_tokens={"type": "array", "items": {"type": "integer"}},
        grammar_triggers={"type": "array", "items": {"type": "object"}},
        lora={"type": "array", "items": of_value({"id": 0, "scale": 1.0})},
    )
    return {
        "Timings": of_value(_Timings().to_json()),
        "Usage": of_value(usage(())),
        "EffectiveParams": settings,
        "SelectedFields": {
            "type": "object",
            "description": "a Completion's fields that `response_fields` names, and no others",
            "additionalProperties": True,
        },
    }
