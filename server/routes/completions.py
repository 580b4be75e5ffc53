"""POST /completion, /completions and /v1/completions."""

from starlette.requests import Request
from starlette.responses import Response

from server.body import read_object
from server.completion import Writers, make_completion
from server.errors import invalid_field
from server.request_record import record_of
from server.responses.native import NativeWriter
from server.responses.openai import OpenAiWriter
from server.routing import Routes
from server.schemas.completion import CompletionBody, parse_completion
from server.state import state_of
from server.thoughts import read_thoughts

routes = Routes(
    "completions",
    errors={
        400: "a field is wrong, or the prompt does not fit the context",
        413: "the body is too long",
        503: "loading, draining, or the queue is full",
    },
)


@routes.post("/v1/completions", body=CompletionBody)
async def openai_completion(request: Request) -> Response:
    """OpenAI's text completion."""
    return await _complete(request, OpenAiWriter)


@routes.post("/completion", body=CompletionBody)
async def completion(request: Request) -> Response:
    """llama-server's completion."""
    return await _complete(request, NativeWriter)


@routes.post("/completions", body=CompletionBody)
async def completions(request: Request) -> Response:
    """The same as /completion."""
    return await _complete(request, NativeWriter)


async def _complete(request: Request, writer: Writers) -> Response:
    body = parse_completion(await read_object(request))
    if body.echo and writer is NativeWriter:
        raise invalid_field("echo", "only /v1/completions supports it")
    arrived_us = record_of(request.scope).started_us
    return await make_completion(
        state_of(request), body, writer, arrived_us=arrived_us, thoughts=read_thoughts(body)
    )
