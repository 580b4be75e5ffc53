"""A request's `prompt` to token ids, in every form that llama-server takes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from server.errors import exceeds_context, invalid, invalid_field

if TYPE_CHECKING:
    from engine_ext import Engine

_BAD_ELEMENT = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt '
    "string, or a list of mixed strings & tokens."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `text` is None where the client sent token ids."""

    tokens: list[int]
    text: str | None


async def read_prompts(engine: "Engine", prompt: Any) -> list[Prompt]:
    """Tokenise `prompt`: a string, ids, a mix of both, {"prompt_string": ...}, or a list of those.

    A leading string gets BOS as the model wants it; control tokens in the text are parsed.
    Raises: ApiError (400) for another form, an id outside the vocabulary, an empty prompt, or one
    that does not leave room for a token in a slot's context.
    """
    if isinstance(prompt, list) and not any(_is_number(item) for item in prompt):
        if not prompt:
            raise invalid('"prompt" must not be empty', param="prompt")
        return [await _read_one(engine, item) for item in prompt]
    return [await _read_one(engine, prompt)]


async def _read_one(engine: "Engine", prompt: Any) -> Prompt:
    text = None
    if isinstance(prompt, dict):
        if "prompt_string" not in prompt:
            raise invalid(_BAD_ELEMENT, param="prompt")
        if prompt.get("multimodal_data"):
            raise invalid(
                "Multimodal data provided, but model does not support multimodal requests.",
                param="prompt",
            )
        prompt = prompt["prompt_string"]
    if isinstance(prompt, str):
        text = prompt
        tokens = await engine.tokenize(prompt, add_special=True, parse_special=True)
    elif isinstance(prompt, list):
        tokens = await read_mixed(engine, prompt, add_special=True, parse_special=True)
    else:
        raise invalid(_BAD_ELEMENT, param="prompt")
    if not tokens:
        raise invalid('"prompt" must not be empty', param="prompt")
    if len(tokens) >= engine.model.n_ctx:
        raise exceeds_context(len(tokens), engine.model.n_ctx)
    return Prompt(tokens, text)


async def read_mixed(
    engine: "Engine", items: list[Any], *, add_special: bool, parse_special: bool
) -> list[int]:
    """Token ids of a list of ids and strings; a leading string may get BOS.

    Raises: ApiError (400) for another type or an id outside the vocabulary.
    """
    if engine.are_tokens(items):
        return items  # the usual case
    n_vocab = engine.model.n_vocab
    tokens: list[int] = []
    for i, item in enumerate(items):
        if isinstance(item, str):
            tokens += await engine.tokenize(
                item, add_special=add_special and i == 0, parse_special=parse_special
            )
            continue
        if isinstance(item, float) and item.is_integer():
            item = int(item)
        if not _is_number(item) or isinstance(item, float):
            raise invalid(_BAD_ELEMENT, param="prompt")
        if not 0 <= item < n_vocab:
            raise invalid("Prompt contains invalid tokens", param="prompt")
        tokens.append(item)
    return tokens


async def read_logit_bias(engine: "Engine", entries: Any) -> list[tuple[int, float]] | None:
    """`logit_bias` as (id, bias): [[id or string, number or false], ...] or {"id or string": ...}.

    Every token of a string is biased; false bans. None if the request has none.
    Raises: ApiError (400) naming the field.
    """
    if entries is None:
        return None
    if isinstance(entries, dict):
        pairs = [
            (int(key) if key.lstrip("-").isdecimal() else key, v) for key, v in entries.items()
        ]
    elif isinstance(entries, list) and all(isinstance(e, list) and len(e) == 2 for e in entries):
        pairs = [(entry[0], entry[1]) for entry in entries]
    else:
        raise invalid_field("logit_bias", "must be an object or an array of [token, bias] pairs")
    biases: list[tuple[int, float]] = []
    for key, value in pairs:
        bias = _bias(value)
        if isinstance(key, str):
            tokens = await engine.tokenize(key, add_special=False, parse_special=False)
            biases += [(token, bias) for token in tokens]
        elif _is_number(key) and not isinstance(key, float) and 0 <= key < engine.model.n_vocab:
            biases.append((key, bias))
        else:
            raise invalid_field("logit_bias", f"{key!r} is no token of this model")
    return biases


def _bias(value: Any) -> float:
    if value is False:
        return float("-inf")
    if not _is_number(value):
        raise invalid_field("logit_bias", "a bias must be a number or false")
    if not abs(value) <= 3.4e38:
        raise invalid_field("logit_bias", f"a bias must be a finite 32-bit number, but got {value}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
