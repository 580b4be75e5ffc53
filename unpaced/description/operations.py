"""What every handler takes, and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from unpaced.description.chat_fields import chat_request
from unpaced.description.completion_fields import PROMPT, completion_fields
from unpaced.description.errors import OF_A_BODY, OF_A_COMPLETION
from unpaced.description.messages_fields import messages_request
from unpaced.description.responses_fields import responses_request
from unpaced.description.shapes import Schema, an_object, array_of, either, nullable, reference
from unpaced.http.routing import Handler
from unpaced.routes import (
    chat,
    completions,
    control,
    health,
    infill,
    lora,
    messages,
    metrics,
    models,
    predict,
    responses,
    slots,
    tokenizer_info,
    tokens,
    unserved,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """`request`: the name of the body's schema. `answer`: the answer's, by status where it is not
    200; "" is an answer without a body. `events`: what the data of each server-sent event is, of
    a route that streams. `errors`: statuses beside those that every route has."""

    request: str = ""
    answer: Schema | None = None
    events: Schema | None = None
    errors: tuple[int, ...] = ()
    status: int = 200
    media_type: str = "application/json"
    is_request_optional: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


def _completion(request: str, answer: Schema, *events: str) -> Operation:
    shapes = [reference(name) for name in (*events, "Error")]
    return Operation(request, answer, either(*shapes), OF_A_COMPLETION)


def _of_chat(request: str, answer: str, *more: int) -> Operation:
    return Operation(request, reference(answer), errors=(*OF_A_COMPLETION, *more))


_NATIVE: Final = either(
    reference("Completion"), array_of(reference("Completion")), reference("SelectedFields")
)
_HEALTH: Final = Operation(answer=reference("Health"))
_NEVER: Final = Operation(errors=(501,))
_TOOLS: Final = Operation(errors=(403,))

OPERATIONS: Final[Mapping[Callable[..., Any], Operation]] = {
    completions.completion: _completion(
        "CompletionRequest", _NATIVE, "CompletionChunk", "Completion"
    ),
    completions.completions: _completion(
        "CompletionRequest", _NATIVE, "CompletionChunk", "Completion"
    ),
    completions.openai_completion: _completion(
        "CompletionRequest", reference("TextCompletion"), "TextCompletion"
    ),
    infill.infill: Operation(
        "InfillRequest",
        _NATIVE,
        either(reference("CompletionChunk"), reference("Completion"), reference("Error")),
        (*OF_A_COMPLETION, 501),
    ),
    chat.chat_completions: _completion(
        "ChatRequest", reference("ChatCompletion"), "ChatCompletionChunk"
    ),
    chat.apply_template: _of_chat("ChatRequest", "RenderedPrompt"),
    chat.input_tokens: _of_chat("ChatRequest", "InputTokens"),
    control.control: _of_chat("Control", "Success"),
    responses.responses: _completion(
        "ResponsesRequest", reference("ResponsesObject"), "ResponsesEvent"
    ),
    responses.input_tokens: _of_chat("ResponsesRequest", "InputTokens"),
    messages.messages: Operation(
        "MessagesRequest",
        reference("MessageObject"),
        either(reference("MessageEvent"), reference("AnthropicError")),
        OF_A_COMPLETION,
    ),
    messages.count_tokens: _of_chat("MessagesRequest", "CountedTokens"),
    tokens.tokenize: _of_chat("TokenizeRequest", "Tokens"),
    tokens.detokenize: _of_chat("DetokenizeRequest", "Text"),
    tokenizer_info.tokenizer_info: Operation(answer=reference("TokenizerInfo")),
    models.models: Operation(answer=reference("ModelList")),
    models.model: Operation(answer=reference("ModelObject"), errors=(404,)),
    models.props: Operation(answer=reference("Props")),
    unserved.change_props: Operation(answer=reference("Success"), errors=(501,)),
    slots.slots: Operation(
        answer=either(array_of(reference("SlotState")), reference("SlotsAndQueue")),
        errors=(501,),
        headers={"X-Queue-Length": "requests that wait for a slot"},
    ),
    slots.act: Operation(
        "SlotFile",
        reference("SlotAction"),
        errors=(*OF_A_COMPLETION, 501),
        is_request_optional=True,
    ),
    lora.adapters: Operation(answer=array_of(reference("Adapter"))),
    lora.set_scales: Operation("AdapterScales", reference("Success"), errors=OF_A_BODY),
    health.health: _HEALTH,
    health.live: _HEALTH,
    health.ready: Operation(answer=reference("Health"), errors=(503,)),
    metrics.metrics: Operation(answer={"type": "string"}, media_type="text/plain", errors=(501,)),
    predict.predict: Operation("Instances", reference("Predictions"), errors=OF_A_BODY),
    unserved.embeddings: _NEVER,
    unserved.rerank: _NEVER,
    unserved.transcriptions: _NEVER,
    unserved.disabled: _TOOLS,
    unserved.resume_stream: Operation(errors=(400, 404)),
    unserved.drop_stream: Operation(status=204, errors=(400,)),
    unserved.lookup_streams: Operation("Anything", array_of({}), errors=OF_A_BODY),
}


def operation_of(handler: Handler) -> Operation:
    """Of a handler of a route. Raises: KeyError for one that is not described."""
    return OPERATIONS[getattr(handler, "func", handler)]


def request_schemas() -> dict[str, Schema]:
    """Of bodies that are put together of fields."""
    completion = completion_fields()
    text = either({"type": "string"}, array_of(either({"type": "string"}, {"type": "integer"})))
    gap = {
        "input_prefix": text | {"description": "code before the gap"},
        "input_suffix": text | {"description": "code behind it"},
        "prompt": nullable({"type": "string"}),
        "input_extra": nullable(array_of(reference("InfillExtra"))),
    }
    return {
        "CompletionRequest": an_object(completion | {"prompt": PROMPT}, required=["prompt"]),
        "InfillRequest": an_object(completion | gap, required=["input_prefix", "input_suffix"]),
        "ChatRequest": chat_request(),
        "ResponsesRequest": responses_request(),
        "MessagesRequest": messages_request(),
        "AdapterScales": array_of(reference("AdapterScale")),
        "Anything": {"description": "any JSON"},
    }
