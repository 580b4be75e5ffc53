"""POST /completion, /completions and /v1/completions."""

from starlette.requests import Request
from starlette.responses import Response

from unpaced.completion.completions import Writers
from unpaced.http.body import read_object
from unpaced.http.errors import invalid_field
from unpaced.http.request_record import record_of
from unpaced.http.routing import Routes
from unpaced.request.reasoning import read_reasoning
from unpaced.routes.parts import completions_of
from unpaced.schemas.completion import parse_completion
from unpaced.writers.native import NativeWriter
from unpaced.writers.openai import OpenAiWriter

routes = Routes("completions")


@routes.post("/v1/completions")
async def openai_completion(request: Request) -> Response:
    """OpenAI's text completion."""
    return await _complete(request, OpenAiWriter)


@routes.post("/completion")
async def completion(request: Request) -> Response:
    """llama-server's completion."""
    return await _complete(request, NativeWriter)


@routes.post("/completions")
async def completions(request: Request) -> Response:
    """The same as /completion."""
    return await _complete(request, NativeWriter)


async def _complete(request: Request, writer: Writers) -> Response:
    body = parse_completion(await read_object(request))
    if body.echo and writer is NativeWriter:
        raise invalid_field("echo", "only /v1/completions supports it")
    arrived_us = record_of(request.scope).started_us
    return await completions_of(request).make(
        body, writer, arrived_us=arrived_us, reasoning=read_reasoning(body)
    )
