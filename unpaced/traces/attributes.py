"""What spans tell of a completion: figures and words of ours, nothing that a client wrote.

Names are OpenTelemetry's `gen_ai` conventions, where they have one. `gen_ai.request.model` is the
model that serves: what a request calls it is free text.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unpaced.completion.choice import Choice
    from unpaced.completion.response import CompletionResponse

_CHATS: Final = ("/chat/completions", "/responses", "/messages")


def operation_of(route: str) -> str:
    """The conventions' word for what a route does."""
    return "chat" if route.endswith(_CHATS) else "text_completion"


def completion_attributes(response: "CompletionResponse", route: str) -> dict[str, Any]:
    """What the request's span tells of a completion."""
    facts, choices = response.facts, response.choices
    params, sampling = facts.settings, facts.settings.sampling
    timings = [choice.sequence_text.timings for choice in choices]
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation_of(route),
        "gen_ai.provider.name": "unpaced",
        "gen_ai.request.model": facts.model,
        "gen_ai.response.model": facts.model,
        "gen_ai.response.id": facts.completion_id,
        "gen_ai.request.stream": bool(facts.body.stream),
        "gen_ai.request.choice.count": len(choices),
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": float(sampling.top_k),
        "gen_ai.usage.input_tokens": sum(t.n_prompt for t in timings),
        "gen_ai.usage.cache_read.input_tokens": sum(t.n_cached for t in timings),
        "gen_ai.usage.output_tokens": sum(t.n_decoded for t in timings),
        "gen_ai.response.finish_reasons": [finish_reason(choice) for choice in choices],
    }
    if params.n_predict >= 0:
        attributes["gen_ai.request.max_tokens"] = params.n_predict
    if first_us := first_token_us(response):
        waited_us = first_us - choices[0].arrived_us
        attributes["gen_ai.response.time_to_first_chunk"] = waited_us / 1e6
    return attributes


def first_token_us(response: "CompletionResponse") -> int:
    """When the first token of all choices came, on the engine's clock; 0: none did."""
    times = [choice.sequence_text.timings.first_token_us for choice in response.choices]
    return min(filter(None, times), default=0)


def finish_reason(choice: "Choice") -> str:
    """OpenAI's word for the end, or `error`, or `cancelled`."""
    sequence_text = choice.sequence_text
    if not sequence_text.is_over:
        return "cancelled"
    return "error" if sequence_text.error is not None else sequence_text.finish_reason
