"""POST /v1/responses and /v1/responses/input_tokens: OpenAI's Responses API, without storage."""

from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.http.body import read_object
from server.http.errors import JSON_TYPE
from server.http.request_record import record_of
from server.http.routing import Routes
from server.routes.chat_modules import import_chat
from server.routes.parts import completions_of, host_of, templates_of

routes = Routes("responses")


@routes.post("/responses")
@routes.post("/v1/responses")
async def responses(request: Request) -> Response:
    """OpenAI's response, on the same path as a chat completion."""
    await import_chat()
    from server.chat.compiled_chat import compile_chat
    from server.chat.completion import run_chat
    from server.schemas.responses import chat_body_of_responses
    from server.writers.responses_api import ResponsesWriter

    completions = completions_of(request)
    body = await read_object(request)
    chat = chat_body_of_responses(body)
    completions.admission.check_room()
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
    from server.chat.compiled_chat import compile_chat
    from server.schemas.responses import chat_body_of_responses

    host, templates = host_of(request), templates_of(request)
    compiled = await compile_chat(
        host, templates, chat_body_of_responses(await read_object(request))
    )
    tokens = await host.engine.tokenize_array(compiled.prompt, add_special=True, parse_special=True)
    body = {"input_tokens": len(tokens), "object": "response.input_tokens"}
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
