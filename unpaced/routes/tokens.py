"""POST /tokenize and /detokenize."""

import asyncio
import codecs
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_object
from unpaced.http.errors import JSON_TYPE, invalid, invalid_field
from unpaced.http.routing import Routes
from unpaced.request.prompt import read_mixed
from unpaced.routes.parts import host_of
from unpaced.values.json_values import json_type

if TYPE_CHECKING:
    from engine_ext import Engine

routes = Routes("tokens")

# Tokens between two looks at the event loop: about a millisecond.
_SLICE: Final = 4096


@routes.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """`content` (text, or a list of text and ids) to token ids, with their text if asked for."""
    body = await read_object(request)
    engine = host_of(request).engine
    content, add_special = body.get("content"), _switch(body, "add_special", False)
    if content is None and "prompt" in body:  # vLLM's names, which lm-eval uses
        content, add_special = body["prompt"], _switch(body, "add_special_tokens", True)
    parse_special = _switch(body, "parse_special", True)
    with_pieces = _switch(body, "with_pieces", False)
    tokens: Sequence[int] = []
    if isinstance(content, list):
        tokens = await read_mixed(
            engine, content, add_special=add_special, parse_special=parse_special
        )
    elif isinstance(content, str):
        tokens = await engine.tokenize_array(
            content, add_special=add_special, parse_special=parse_special
        )
    elif content is not None:
        raise invalid_field("content", f"type must be string, but is {json_type(content)}")
    pieces = engine.token_pieces_special if with_pieces else None
    parts = [b'{"tokens":[']
    async for part in _slices(tokens):
        if len(parts) > 1:
            parts.append(b",")
        parts.append(_json_of(part, pieces)[1:-1])
    parts.append(b"]}")
    return _json(parts)


@routes.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """`tokens` to text, control tokens spelled out."""
    body = await read_object(request)
    engine = host_of(request).engine
    tokens = body.get("tokens")
    tokens = [] if tokens is None else tokens
    if not isinstance(tokens, list):
        raise invalid_field("tokens", f"type must be array, but is {json_type(tokens)}")
    pieces = engine.token_pieces_special
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    parts = [b'{"content":"']
    async for part in _slices(tokens):
        if not engine.are_tokens(part):
            raise _bad_token(engine, part)
        parts.append(orjson.dumps(decoder.decode(b"".join([pieces[t] for t in part])))[1:-1])
    parts += [orjson.dumps(decoder.decode(b"", final=True))[1:-1], b'"}']
    return _json(parts)


def _switch(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid_field(name, f"type must be boolean, but is {json_type(value)}")
    return value


async def _slices(tokens: Sequence[Any]) -> AsyncIterator[list[Any]]:
    """A few of them at a time; between these others have their turn."""
    for at in range(0, len(tokens), _SLICE):
        if at > 0:
            await asyncio.sleep(0)
        yield list(tokens[at : at + _SLICE])


def _json_of(tokens: list[int], pieces: list[bytes] | None) -> bytes:
    if pieces is None:
        return orjson.dumps(tokens)
    return orjson.dumps([{"id": token, "piece": _piece(pieces[token])} for token in tokens])


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _bad_token(engine: "Engine", tokens: list[Any]) -> Exception:
    """What is wrong with the first of `tokens` that is no token."""
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int):
            return invalid_field("tokens", f"type must be number, but is {json_type(token)}")
        if not 0 <= token < engine.model.n_vocab:
            break
    return invalid(f"Field 'tokens': {token} is no token of this model", param="tokens")


def _json(parts: list[bytes]) -> Response:
    return Response(b"".join(parts), media_type=JSON_TYPE)
