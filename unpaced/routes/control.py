"""POST /v1/chat/completions/control: a word to a completion that is running."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_object
from unpaced.http.errors import JSON_TYPE, invalid
from unpaced.http.routing import Routes
from unpaced.routes.parts import completions_of

routes = Routes("chat")


@routes.post("/v1/chat/completions/control")
async def control(request: Request) -> Response:
    """End the reasoning of a completion whose request had `reasoning_control`, in all its choices.

    Success says that it runs and was told; a choice that is not reasoning goes on as before.
    Source: llama.cpp 0c1e57098, tools/server/server-context.cpp:2445 and :4931.
    """
    body = await read_object(request)
    completion_id = body.get("id")
    if not isinstance(completion_id, str) or not completion_id:
        raise invalid("missing completion id", param="id")
    if body.get("action") != "reasoning_end":
        raise invalid("unknown control action", param="action")
    completion = completions_of(request).live.get(completion_id)
    if completion is None or not completion.is_running:
        return _failure("no active completion for this id")
    if not completion.allows_control:
        return _failure("reasoning control not enabled for this completion")
    completion.end_reasoning()
    return Response(orjson.dumps({"success": True}), media_type=JSON_TYPE)


def _failure(message: str) -> Response:
    return Response(orjson.dumps({"success": False, "message": message}), media_type=JSON_TYPE)
