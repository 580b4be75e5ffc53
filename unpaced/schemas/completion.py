"""The body of /completion, /completions and /v1/completions: one schema for all three."""

from typing import Annotated, Any, Final, get_args

from pydantic import ValidationError

from unpaced.http.errors import ApiError, invalid, invalid_field
from unpaced.schemas.lora import LoraScales, Scales
from unpaced.schemas.sampling import SamplingFields
from unpaced.values.json_values import (
    INT32_MAX,
    Name,
    Only,
    Strings,
    Switch,
    Text,
    Whole,
    json_type,
)
from unpaced.values.reasoning_format import ReasoningFormat
from unpaced.values.samplers import unknown_samplers

MAX_CHOICES: Final = 128
"""OpenAI's limit. llama-server's is its number of slots; here the rest waits its turn."""

# The first name that is present wins, as in llama-server.
ALIASES: Final = {
    "n_predict": ("n_predict", "max_completion_tokens", "max_tokens"),
    "n_cmpl": ("n_cmpl", "n"),
    "n_probs": ("n_probs", "logprobs"),
    "reasoning_budget_end_tags": ("reasoning_budget_end_tags", "reasoning_budget_end_tag"),
}


class CompletionBody(SamplingFields):
    """What a client may send. None is "the server's default"."""

    model: Any = None
    """Only a name to count the completion under: whatever it says, the one model answers."""
    prompt: Any = None
    n_predict: Annotated[int | None, Whole(-1, INT32_MAX)] = None
    n_cmpl: Annotated[int | None, Whole(1, MAX_CHOICES)] = None
    stop: Annotated[tuple[str, ...] | None, Strings(one=True)] = None
    stream: Annotated[bool | None, Switch()] = None
    stream_options: Any = None
    echo: Annotated[bool | None, Switch()] = None
    n_probs: Annotated[int | None, Whole(0, INT32_MAX, switch=True)] = None
    legacy_logprobs: bool = False
    """`logprobs` was asked for, by OpenAI's name; `parse_completion` sets it."""
    unknown_samplers: tuple[str, ...] = ()
    """What `samplers` named and is left out; `parse_completion` sets it."""
    post_sampling_probs: Annotated[bool | None, Switch()] = None
    cache_prompt: Annotated[bool | None, Switch()] = None
    cache_salt: Annotated[str | None, Text(4096)] = None
    """Only requests with the same one share cells and kept prompts, whatever their API keys."""
    return_tokens: Annotated[bool | None, Switch()] = None
    return_progress: Annotated[bool | None, Switch()] = None
    # Chat answers are parsed by it; a plain completion only shows it among its settings.
    reasoning_format: Annotated[str | None, Name(get_args(ReasoningFormat), "reasoning format")] = (
        None
    )
    # When reasoning must end; a chat request's template tells the tags and the prompt's own part.
    reasoning_budget_tokens: Annotated[int | None, Whole(-1, INT32_MAX)] = None
    reasoning_budget_start_tag: Annotated[str | None, Text(4096)] = None
    reasoning_budget_end_tags: Annotated[tuple[str, ...] | None, Strings(one=True)] = None
    reasoning_budget_message: Annotated[str | None, Text(65536)] = None
    reasoning_control: Annotated[bool | None, Switch()] = None
    generation_prompt: Annotated[str | None, Text()] = None
    timings_per_token: Annotated[bool | None, Switch()] = None
    verbose: Annotated[bool | None, Switch()] = None
    sse_ping_interval: Annotated[int | None, Whole(-1, INT32_MAX)] = None
    response_format: Any = None
    response_fields: Annotated[tuple[str, ...] | None, Strings(keeps_empty=True)] = None
    # What a context shift keeps; without --context-shift nothing is shifted.
    n_keep: Annotated[int | None, Whole(-1, INT32_MAX)] = None
    n_discard: Annotated[int | None, Whole(0, INT32_MAX)] = None
    n_cache_reuse: Annotated[int | None, Whole(0, INT32_MAX)] = None
    id_slot: Annotated[int | None, Whole(-1, INT32_MAX)] = None
    # vLLM's: of one client's requests that wait the lower one is earlier.
    priority: Annotated[int | None, Whole(-(2**63), 2**63 - 1)] = None
    n_indent: Annotated[int | None, Whole(0, INT32_MAX)] = None
    t_max_predict_ms: Annotated[int | None, Whole(-1, 2**63 - 1)] = None

    # Known, and a 400 where they ask for something.
    lora: Annotated[Scales | None, LoraScales()] = None
    suffix: Annotated[Any, Only(("",), "not supported")] = None
    best_of: Any = None
    min_tokens: Annotated[Any, Only((0,), "not supported")] = None
    stop_token_ids: Annotated[Any, Only(([],), "not supported")] = None

    @property
    def n_choices(self) -> int:
        """Completions a prompt."""
        return self.n_cmpl or 1


def parse_completion(body: dict[str, Any]) -> CompletionBody:
    """Check a decoded body. Raises: ApiError that names the first field at fault."""
    names = {}
    checked = dict(body)
    for field, aliases in ALIASES.items():
        for alias in aliases:
            if body.get(alias) is not None:
                checked[field] = body[alias]
                names[field] = alias
                break
    checked["legacy_logprobs"] = names.get("n_probs") == "logprobs"
    checked["unknown_samplers"] = unknown_samplers(body.get("samplers"))
    try:
        parsed = CompletionBody.model_validate(checked)
    except ValidationError as error:
        raise _field_error(error, names) from None
    _check_together(parsed)
    return parsed


def _field_error(error: ValidationError, names: dict[str, str]) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "body"
    return invalid_field(names.get(field, field), first["msg"])


def _check_together(body: CompletionBody) -> None:
    if body.cache_salt == "":
        raise invalid_field("cache_salt", "must not be empty")
    if body.prompt is None:
        raise invalid('"prompt" is required', param="prompt")
    options = body.stream_options
    if options is not None:
        if not isinstance(options, dict):
            raise invalid_field(
                "stream_options", f"type must be object, but is {json_type(options)}"
            )
        include = options.get("include_usage")
        if include is not None and not isinstance(include, bool):
            raise invalid_field(
                "include_usage", f"type must be boolean, but is {json_type(include)}"
            )
    if body.best_of is not None and body.best_of != body.n_choices:
        raise invalid_field("best_of", "only a value equal to n is supported")
