"""A request's `prompt` to token ids, in every form that llama-server takes."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from unpaced.http.errors import ApiError, exceeds_context, invalid, invalid_field

if TYPE_CHECKING:
    from engine_ext import Engine

_BAD_ELEMENT = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt '
    "string, or a list of mixed strings & tokens."
)
# A key that is a token id; 19 digits are more than any has.
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
# Of a text in `logit_bias`, for each token that it may have.
_LETTERS_A_BIAS: Final = 8
# Items between two looks at the event loop: a few milliseconds.
_SLICE: Final = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `text` is None where the client sent token ids."""

    tokens: list[int]
    text: str | None


def count_prompts(prompt: Any) -> int:
    """How many prompts `read_prompts` will make of it, before any work is done."""
    return len(prompt) if _is_list_of_prompts(prompt) else 1


async def read_prompts(engine: "Engine", prompt: Any) -> list[Prompt]:
    """Tokenise `prompt`: a string, ids, a mix of both, {"prompt_string": ...}, or a list of those.

    A leading string gets BOS as the model wants it; control tokens in the text are parsed.
    Raises: ApiError (400) for another form, an id outside the vocabulary, an empty prompt, or one
    that does not leave room for a token in a slot's context.
    """
    if not _is_list_of_prompts(prompt):
        return [await _read_one(engine, prompt)]
    if not prompt:
        raise invalid('"prompt" must not be empty', param="prompt")
    if all(isinstance(item, str) for item in prompt):
        tokens = await engine.tokenize_all(prompt, add_special=True, parse_special=True)
        return [_checked(engine, *each) for each in zip(tokens, prompt, strict=True)]
    return [await _read_one(engine, item) for item in prompt]


def _is_list_of_prompts(prompt: Any) -> bool:
    return isinstance(prompt, list) and not any(map(_is_number, prompt))


async def _read_one(engine: "Engine", prompt: Any) -> Prompt:
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
        return await _read_text(engine, prompt)
    if not isinstance(prompt, list):
        raise invalid(_BAD_ELEMENT, param="prompt")
    tokens = await read_mixed(engine, prompt, add_special=True, parse_special=True)
    return _checked(engine, tokens, None)


async def _read_text(engine: "Engine", text: str) -> Prompt:
    if len(text) < engine.model.n_ctx:
        tokens = await engine.tokenize(text, add_special=True, parse_special=True)
        return _checked(engine, tokens, text)
    # It may have far more tokens than fit: no list is made of those.
    ids = await engine.tokenize_array(text, add_special=True, parse_special=True)
    _check_length(engine, len(ids))
    return _checked(engine, ids.tolist(), text)


def _checked(engine: "Engine", tokens: list[int], text: str | None) -> Prompt:
    _check_length(engine, len(tokens))
    return Prompt(tokens, text)


def _check_length(engine: "Engine", n_tokens: int) -> None:
    if n_tokens == 0:
        raise invalid('"prompt" must not be empty', param="prompt")
    if n_tokens >= engine.model.n_ctx:
        raise exceeds_context(n_tokens, engine.model.n_ctx)


async def read_mixed(
    engine: "Engine", items: list[Any], *, add_special: bool, parse_special: bool
) -> list[int]:
    """Token ids of a list of ids and strings; a leading string may get BOS.

    Raises: ApiError (400) for another type or an id outside the vocabulary.
    """
    if engine.are_tokens(items):
        return items  # the usual case
    mixed: list[int] = []
    if add_special and isinstance(items[0], str):
        mixed += await engine.tokenize(items[0], add_special=True, parse_special=parse_special)
        items = items[1:]
    for at in range(0, len(items), _SLICE):
        part = items[at : at + _SLICE]
        await asyncio.sleep(0)  # others' turn
        if engine.are_tokens(part):
            mixed += part
        else:
            mixed += await _read_part(engine, part, parse_special=parse_special)
    return mixed


async def _read_part(engine: "Engine", part: list[Any], *, parse_special: bool) -> list[int]:
    wholes = [_whole(item) for item in part]
    texts = [item for item in wholes if isinstance(item, str)]
    if any(not isinstance(item, str) and not 0 <= item < engine.model.n_vocab for item in wholes):
        raise invalid("Prompt contains invalid tokens", param="prompt")
    found = iter(await engine.tokenize_all(texts, add_special=False, parse_special=parse_special))
    return [
        token for item in wholes for token in (next(found) if isinstance(item, str) else (item,))
    ]


def _whole(item: Any) -> int | str:
    if isinstance(item, float) and item.is_integer():
        return int(item)
    if isinstance(item, str) or (isinstance(item, int) and not isinstance(item, bool)):
        return item
    raise invalid(_BAD_ELEMENT, param="prompt")


async def read_logit_bias(
    engine: "Engine", entries: Any, n_max: int
) -> list[tuple[int, float]] | None:
    """`logit_bias` as (id, bias): [[id or string, number or false], ...] or {"id or string": ...}.

    Every token of a string is biased; false bans. None if the request has none.
    Raises: ApiError (400) naming the field, also for over `n_max` tokens or 8 letters for each.
    """
    if entries is None:
        return None
    if not isinstance(entries, dict | list):
        raise _bad_bias("must be an object or an array of [token, bias] pairs")
    if len(entries) > n_max:
        raise _too_many_biases(n_max)
    texts: list[str] = []
    pairs: list[tuple[int | str, float]] = []
    for i, (key, value) in enumerate(_pairs(entries)):
        if i % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        if isinstance(key, str):
            texts.append(key)
        elif not _is_number(key) or isinstance(key, float) or not 0 <= key < engine.model.n_vocab:
            raise _bad_bias(f"{str(key)[:40]!r} is no token of this model")
        pairs.append((key, _bias(value)))
    if not texts:
        return cast("list[tuple[int, float]]", pairs)
    # Tokenising takes a second for 4 MB: what is too long for its tokens is counted before.
    n_letters_max = _LETTERS_A_BIAS * n_max
    if sum(map(len, texts)) > n_letters_max:
        raise _bad_bias(
            f"at most {n_letters_max} letters of text, "
            f"{_LETTERS_A_BIAS} for each token (--max-logit-bias)"
        )
    tokens = await engine.tokenize_all(texts, add_special=False, parse_special=False)
    if sum(map(len, tokens)) > n_max:
        raise _too_many_biases(n_max)
    found = iter(tokens)
    return [
        (token, bias)
        for key, bias in pairs
        for token in (next(found) if isinstance(key, str) else (key,))
    ]


def _pairs(entries: dict[str, Any] | list[Any]) -> Iterator[tuple[Any, Any]]:
    if isinstance(entries, dict):
        for key, value in entries.items():
            yield (int(key) if _NUMBER.fullmatch(key) else key), value
        return
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2:
            raise _bad_bias("must be an object or an array of [token, bias] pairs")
        yield entry[0], entry[1]


def _bad_bias(message: str) -> ApiError:
    return invalid_field("logit_bias", message)


def _too_many_biases(n_max: int) -> ApiError:
    return _bad_bias(f"at most {n_max} tokens (--max-logit-bias)")


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
