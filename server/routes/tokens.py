"""POST /tokenize and /detokenize."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.body import read_object
from server.errors import JSON_TYPE, invalid, invalid_field
from server.prompt import read_mixed
from server.routing import Routes
from server.schemas.values import json_type
from server.state import state_of

routes = Routes("tokens")


@routes.post("/tokenize")
async def tokenize(request: Request) -> Response:
    """`content` (text, or a list of text and ids) to token ids, with their text if asked for."""
    body = await read_object(request)
    engine = state_of(request).engine
    content, add_special = body.get("content"), _switch(body, "add_special", False)
    if content is None and "prompt" in body:  # vLLM's names, which lm-eval uses
        content, add_special = body["prompt"], _switch(body, "add_special_tokens", True)
    parse_special = _switch(body, "parse_special", True)
    with_pieces = _switch(body, "with_pieces", False)
    tokens: list[int] = []
    if isinstance(content, list):
        tokens = await read_mixed(
            engine, content, add_special=add_special, parse_special=parse_special
        )
    elif isinstance(content, str):
        tokens = await engine.tokenize(
            content, add_special=add_special, parse_special=parse_special
        )
    elif content is not None:
        raise invalid_field("content", f"type must be string, but is {json_type(content)}")
    if not with_pieces:
        return _json({"tokens": tokens})
    pieces = engine.token_pieces_special
    return _json({"tokens": [{"id": token, "piece": _piece(pieces[token])} for token in tokens]})


@routes.post("/detokenize")
async def detokenize(request: Request) -> Response:
    """`tokens` to text, control tokens spelled out."""
    body = await read_object(request)
    engine = state_of(request).engine
    tokens = body.get("tokens") or []
    if not isinstance(tokens, list):
        raise invalid_field("tokens", f"type must be array, but is {json_type(tokens)}")
    pieces = engine.token_pieces_special
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int):
            raise invalid_field("tokens", f"type must be number, but is {json_type(token)}")
        if not 0 <= token < len(pieces):
            raise invalid(f"Field 'tokens': {token} is no token of this model", param="tokens")
    text = b"".join(pieces[token] for token in tokens).decode(errors="replace")
    return _json({"content": text})


def _switch(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid_field(name, f"type must be boolean, but is {json_type(value)}")
    return value


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
