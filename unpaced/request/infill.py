"""POST /infill: code before and after a gap, to the prompt that asks for what is between.

Source: llama.cpp 0c1e57098, tools/server/server-common.cpp:1737 (format_prompt_infill) and
server-context.cpp:4809; the pattern is Qwen2.5-Coder's (arXiv:2409.12186).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unpaced.http.errors import ApiError, invalid, invalid_field, not_supported
from unpaced.request.prompt import read_mixed
from unpaced.values.json_values import json_type

if TYPE_CHECKING:
    from engine_ext import Engine

_SNIPPET: Final = "\n\n--- snippet ---\n\n"
"""Stands before a piece of other code where the vocabulary has no separator token."""
_CHUNKS: Final = 64
"""Pieces of other code between two looks at the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillLimits:
    """What a prompt is cut to, tokens. `n_predict` < 0: the server has no limit of its own."""

    n_batch: int
    n_ctx: int
    n_predict: int


async def read_infill(
    engine: "Engine", body: dict[str, Any], limits: InfillLimits, *, suffix_first: bool
) -> list[int]:
    """The prompt's token ids. `suffix_first`: suffix, prefix, middle (--spm-infill).

    Long input is cut as llama-server does: the end of the prefix, the beginning of the suffix and
    the end of the other code are kept.
    Raises: ApiError: 501 if the vocabulary lacks the tokens, 400 for a field at fault.
    """
    model = engine.model
    _check_vocabulary(engine)
    chunks = _check_body(body)
    prefix = await _tokens_of(engine, body, "input_prefix")
    suffix = await _tokens_of(engine, body, "input_suffix")
    prompt = await engine.tokenize(body.get("prompt") or "", add_special=False, parse_special=True)
    n_extra = max(0, limits.n_ctx - limits.n_batch - 2 * limits.n_predict)
    extra = await _extra_tokens(engine, chunks, n_extra)

    n_prefix = min(len(prefix), 3 * (limits.n_batch // 4))
    n_suffix = min(len(suffix), max(0, limits.n_batch // 4 - (2 + len(prompt))))
    before = [model.fim_prefix, *prefix[len(prefix) - n_prefix :], *prompt]
    after = [model.fim_suffix, *suffix[:n_suffix]]
    parts = [*after, *before] if suffix_first else [*before, *after]
    bos = [model.bos] if model.add_bos else []
    return [*extra, *bos, *parts, model.fim_middle]


def _check_vocabulary(engine: "Engine") -> None:
    model = engine.model
    names = {"prefix": model.fim_prefix, "suffix": model.fim_suffix, "middle": model.fim_middle}
    missing = "".join(f"{name} token is missing. " for name, token in names.items() if token < 0)
    if missing:
        raise not_supported(f"Infill is not supported by this model: {missing}")


def _check_body(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The `input_extra` of a body that is in order."""
    prompt, extra = body.get("prompt"), body.get("input_extra")
    if prompt is not None and not isinstance(prompt, str):
        raise invalid('"prompt" must be a string', param="prompt")
    if extra is None:
        return []
    if not isinstance(extra, list):
        raise _bad_extra('"input_extra" must be an array of {"filename": string, "text": string}')
    for chunk in extra:
        if not isinstance(chunk, dict) or not isinstance(chunk.get("text"), str):
            raise _bad_extra('extra_context chunk must contain a "text" field with a string value')
        if not isinstance(chunk.get("filename", ""), str):
            raise _bad_extra('extra_context chunk\'s "filename" field must be a string')
    return extra


def _bad_extra(message: str) -> ApiError:
    return invalid(message, param="input_extra")


async def _tokens_of(engine: "Engine", body: dict[str, Any], name: str) -> Sequence[int]:
    """Of text, or of a list of text and ids. Control tokens in code are text."""
    value = body.get(name)
    if value is None:
        raise invalid(f'"{name}" is required', param=name)
    if isinstance(value, str):
        return await engine.tokenize_array(value, add_special=False, parse_special=False)
    if isinstance(value, list):
        return await read_mixed(engine, value, add_special=False, parse_special=False)
    raise invalid_field(name, f"type must be string, but is {json_type(value)}")


async def _extra_tokens(engine: "Engine", chunks: list[dict[str, Any]], n_max: int) -> list[int]:
    """Other code of the project, each piece behind its file's name: its last `n_max` tokens.

    Read from the end, so that nothing is tokenised that is not kept.
    """
    model = engine.model
    parts: list[Sequence[int]] = []
    n_left = n_max

    async def put(text: str) -> None:
        nonlocal n_left
        if n_left > 0:
            add(await engine.tokenize_array(text, add_special=False, parse_special=False))

    def add(tokens: Sequence[int]) -> None:
        nonlocal n_left
        kept = tokens[max(0, len(tokens) - n_left) :]
        parts.append(kept)
        n_left -= len(kept)

    if model.fim_separator >= 0:
        await put("filename\n")
        add([model.fim_separator])
    for i, chunk in enumerate(reversed(chunks)):
        if n_left == 0:
            break
        if i % _CHUNKS == _CHUNKS - 1:
            await asyncio.sleep(0)
        await put(chunk["text"])
        if model.fim_separator >= 0:
            await put(chunk.get("filename", "tmp") + "\n")
            add([model.fim_separator])
        else:
            await put(_SNIPPET)
    if model.fim_repo >= 0:
        await put("myproject\n")
        add([model.fim_repo])
    return [token for part in reversed(parts) for token in part]
