"""POST /v1/responses and /v1/responses/input_tokens: OpenAI's Responses API, without storage."""

from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_object
from unpaced.http.errors import JSON_TYPE
from unpaced.http.request_record import record_of
from unpaced.http.routing import Routes
from unpaced.routes.chat_modules import import_chat
from unpaced.routes.parts import completions_of, host_of, templates_of

routes = Routes("responses")


@routes.post("/responses")
@routes.post("/v1/responses")
async def responses(request: Request) -> Response:
    """OpenAI's response, on the same path as a chat completion."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat
    from unpaced.chat.completion import run_chat
    from unpaced.schemas.responses import chat_body_of_responses
    from unpaced.writers.responses_api import ResponsesWriter

    completions = completions_of(request)
    body = await read_object(request)
    chat = chat_body_of_responses(body)
    completions.check_room()
    compiled = await compile_chat(host_of(request), templates_of(request), chat)
    writer = partial(ResponsesWriter, request=body)
    return await run_chat(
        completions, compiled, writer, arrived_us=record_of(request.scope).started_us
    )


@routes.post("/responses/input_tokens")
@routes.post("/v1/responses/input_tokens")
async def input_tokens(request: Request) -> Response:
    """How many tokens a response's prompt has."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat
    from unpaced.schemas.responses import chat_body_of_responses

    host, templates = host_of(request), templates_of(request)
    compiled = await compile_chat(
        host, templates, chat_body_of_responses(await read_object(request))
    )
    tokens = await host.engine.tokenize_array(compiled.prompt, add_special=True, parse_special=True)
    body = {"input_tokens": len(tokens), "object": "response.input_tokens"}
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
