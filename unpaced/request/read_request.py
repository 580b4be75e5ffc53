"""A completion's body, read against the model: prompts in tokens, sampling, LoRA scales."""

from dataclasses import dataclass

from engine_ext import SamplingParams
from unpaced.http.errors import invalid, invalid_field
from unpaced.request.model_host import ModelHost
from unpaced.request.prompt import Prompt, read_logit_bias, read_prompts
from unpaced.schemas.completion import CompletionBody
from unpaced.schemas.lora import scales_of_all


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a body asks for in the model's terms. `lora_scales`: one for each adapter."""

    body: CompletionBody
    prompts: list[Prompt]
    sampling: SamplingParams
    lora_scales: tuple[float, ...]


async def read_request(host: ModelHost, body: CompletionBody) -> ReadRequest:
    """Tokenise, and check against the model. Raises: ApiError (400) naming the field."""
    engine, settings = host.engine, host.settings
    if body.verbose is None and settings.verbose:
        body = body.model_copy(update={"verbose": True})
    lora_scales = _lora_scales(host, body)
    biases = await read_logit_bias(engine, body.logit_bias, settings.max_logit_bias)
    sampling = body.to_sampling_params(host.sampling_defaults, biases)
    try:
        await engine.compile_sampling(sampling)
    except ValueError as error:
        raise invalid(str(error)) from None
    prompts = await read_prompts(engine, body.prompt)
    engine.expect()
    return ReadRequest(body, prompts, sampling, lora_scales)


def _lora_scales(host: ModelHost, body: CompletionBody) -> tuple[float, ...]:
    if not body.lora:
        return host.lora_scales
    try:
        return scales_of_all(body.lora, len(host.lora_scales))
    except ValueError as error:
        raise invalid_field("lora", str(error)) from None
