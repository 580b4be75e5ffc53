"""POST /v1/chat/completions and what belongs to it."""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from server.body import read_object
from server.chat.completion import make_chat
from server.chat.plan import prepare_chat
from server.errors import JSON_TYPE
from server.request_record import record_of
from server.state import state_of

router = APIRouter(tags=["chat"])

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "a field is wrong, the template refuses, or the prompt does not fit"},
    413: {"description": "the body is too long"},
    503: {"description": "loading, draining, or the queue is full"},
}


@router.post("/chat/completions", responses=_ERRORS)
@router.post("/v1/chat/completions", responses=_ERRORS)
async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completion."""
    body = await read_object(request)
    arrived_us = record_of(request.scope).started_us
    return await make_chat(state_of(request), body, arrived_us=arrived_us)


@router.post("/apply-template", responses=_ERRORS)
async def apply_template(request: Request) -> Response:
    """The prompt that a chat request would be given."""
    plan = await prepare_chat(state_of(request), await read_object(request))
    return Response(orjson.dumps({"prompt": plan.prompt}), media_type=JSON_TYPE)


@router.post("/chat/completions/input_tokens", responses=_ERRORS)
@router.post("/v1/chat/completions/input_tokens", responses=_ERRORS)
async def input_tokens(request: Request) -> Response:
    """How many tokens a chat request's prompt has."""
    state = state_of(request)
    plan = await prepare_chat(state, await read_object(request))
    tokens = await state.engine.tokenize(plan.prompt, add_special=True, parse_special=True)
    body = {"input_tokens": len(tokens), "object": "response.input_tokens"}
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
