"""POST /v1/chat/completions and what belongs to it.

What chat needs is imported by its first request or a second after the start
(`unpaced.process.app`): a tenth of a start that completions have no use for.
"""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_object
from unpaced.http.errors import JSON_TYPE
from unpaced.http.request_record import record_of
from unpaced.http.routing import Routes
from unpaced.routes.chat_modules import import_chat
from unpaced.routes.parts import completions_of, host_of, templates_of

routes = Routes("chat")


@routes.post("/chat/completions")
@routes.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completion."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat
    from unpaced.chat.completion import run_chat
    from unpaced.writers.chat import ChatWriter

    completions, body = completions_of(request), await read_object(request)
    completions.check_room()
    compiled = await compile_chat(host_of(request), templates_of(request), body)
    return await run_chat(
        completions, compiled, ChatWriter, arrived_us=record_of(request.scope).started_us
    )


@routes.post("/apply-template")
async def apply_template(request: Request) -> Response:
    """The prompt that a chat request would be given."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat

    host, templates = host_of(request), templates_of(request)
    compiled = await compile_chat(host, templates, await read_object(request))
    return Response(orjson.dumps({"prompt": compiled.prompt}), media_type=JSON_TYPE)


@routes.post("/chat/completions/input_tokens")
@routes.post("/v1/chat/completions/input_tokens")
async def input_tokens(request: Request) -> Response:
    """How many tokens a chat request's prompt has."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat

    host, templates = host_of(request), templates_of(request)
    compiled = await compile_chat(host, templates, await read_object(request))
    tokens = await host.engine.tokenize_array(compiled.prompt, add_special=True, parse_special=True)
    body = {"input_tokens": len(tokens), "object": "response.input_tokens"}
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
