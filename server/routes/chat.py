"""POST /v1/chat/completions and what belongs to it.

What chat needs is imported by its first request or a second after the start
(`server.process.app`): a tenth of a start that completions have no use for.
"""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.completion.request_record import record_of
from server.completion.state import state_of
from server.http.body import read_object
from server.http.errors import JSON_TYPE
from server.http.routing import Routes
from server.routes.chat_modules import import_chat

routes = Routes("chat")


@routes.post("/chat/completions")
@routes.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completion."""
    await import_chat()
    from server.chat.completion import make_chat

    body = await read_object(request)
    arrived_us = record_of(request.scope).started_us
    return await make_chat(state_of(request), body, arrived_us=arrived_us)


@routes.post("/apply-template")
async def apply_template(request: Request) -> Response:
    """The prompt that a chat request would be given."""
    await import_chat()
    from server.chat.plan import prepare_chat

    plan = await prepare_chat(state_of(request), await read_object(request))
    return Response(orjson.dumps({"prompt": plan.prompt}), media_type=JSON_TYPE)


@routes.post("/chat/completions/input_tokens")
@routes.post("/v1/chat/completions/input_tokens")
async def input_tokens(request: Request) -> Response:
    """How many tokens a chat request's prompt has."""
    await import_chat()
    from server.chat.plan import prepare_chat

    state = state_of(request)
    plan = await prepare_chat(state, await read_object(request))
    tokens = await state.engine.tokenize_array(plan.prompt, add_special=True, parse_special=True)
    body = {"input_tokens": len(tokens), "object": "response.input_tokens"}
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
