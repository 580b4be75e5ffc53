"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API."""

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

routes = Routes("anthropic")


@routes.post("/v1/messages")
async def messages(request: Request) -> Response:
    """Anthropic's message, on the same path as a chat completion."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat
    from unpaced.chat.completion import run_chat
    from unpaced.schemas.messages import chat_body_of_messages
    from unpaced.writers.anthropic import MessagesWriter

    completions = completions_of(request)
    chat = chat_body_of_messages(await read_object(request))
    completions.check_room()
    host, templates = host_of(request), templates_of(request)
    # Its answers have nothing of what the client wrote.
    compiled = await compile_chat(host, templates, chat, repeats_prefill=False)
    stops = chat.get("stop", ())
    writer = partial(MessagesWriter, stops=(stops,) if isinstance(stops, str) else stops)
    return await run_chat(
        completions, compiled, writer, arrived_us=record_of(request.scope).started_us
    )


@routes.post("/v1/messages/count_tokens")
async def count_tokens(request: Request) -> Response:
    """How many tokens a message's prompt has."""
    await import_chat()
    from unpaced.chat.compiled_chat import compile_chat
    from unpaced.schemas.messages import chat_body_of_messages

    host, templates = host_of(request), templates_of(request)
    compiled = await compile_chat(
        host, templates, chat_body_of_messages(await read_object(request))
    )
    tokens = await host.engine.tokenize_array(compiled.prompt, add_special=True, parse_special=True)
    return Response(orjson.dumps({"input_tokens": len(tokens)}), media_type=JSON_TYPE)
