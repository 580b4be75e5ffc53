"""POST /completion, /completions and /v1/completions."""

from typing import Any

from fastapi import APIRouter, Request, Response

from server.body import read_object
from server.completion import Writers, make_completion
from server.errors import invalid_field
from server.request_record import record_of
from server.responses.native import NativeWriter
from server.responses.openai import OpenAiWriter
from server.schemas.completion import CompletionBody, parse_completion
from server.state import state_of

router = APIRouter(tags=["completions"])

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "a field is wrong, or the prompt does not fit the context"},
    413: {"description": "the body is too long"},
    503: {"description": "loading, draining, or the queue is full"},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": CompletionBody.model_json_schema()}},
    }
}


@router.post("/v1/completions", responses=_ERRORS, openapi_extra=_BODY)
async def openai_completion(request: Request) -> Response:
    """OpenAI's text completion."""
    return await _complete(request, OpenAiWriter)


@router.post("/completion", responses=_ERRORS, openapi_extra=_BODY)
async def completion(request: Request) -> Response:
    """llama-server's completion."""
    return await _complete(request, NativeWriter)


@router.post("/completions", responses=_ERRORS, openapi_extra=_BODY)
async def completions(request: Request) -> Response:
    """The same as /completion."""
    return await _complete(request, NativeWriter)


async def _complete(request: Request, writer: Writers) -> Response:
    body = parse_completion(await read_object(request))
    if body.echo and writer is NativeWriter:
        raise invalid_field("echo", "only /v1/completions supports it")
    arrived_us = record_of(request.scope).started_us
    return await make_completion(state_of(request), body, writer, arrived_us=arrived_us)
