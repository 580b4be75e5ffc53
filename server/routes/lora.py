"""GET and POST /lora-adapters."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from server.body import read_json
from server.errors import JSON_TYPE, invalid, not_supported
from server.routing import Routes
from server.state import ServerState, state_of

routes = Routes("lora")


@routes.get("/lora-adapters")
async def adapters(request: Request) -> Response:
    """The adapters of --lora and --lora-scaled, with their factors."""
    return _json(
        [
            {"id": i, "path": str(path), "scale": scale, "task_name": "", "prompt_prefix": ""}
            for i, (path, scale) in enumerate(state_of(request).settings.loras())
        ]
    )


@routes.post("/lora-adapters")
async def set_scales(request: Request) -> Response:
    """200 if the factors are those asked for; one that is not named is asked to be 0.

    They are fixed when the server starts: others are a 501.
    """
    body = await read_json(request)
    if not isinstance(body, list):
        raise invalid("Request body must be an array")
    state = state_of(request)
    asked = _asked_scales(state, body)
    if asked != [scale for _, scale in state.settings.loras()]:
        raise not_supported(
            "the adapters' scales are fixed while the server runs; start it with --lora-scaled"
        )
    return _json({"success": True})


def _asked_scales(state: ServerState, body: list[Any]) -> list[float]:
    scales = [0.0] * len(state.settings.loras())
    for entry in body:
        if not isinstance(entry, dict):
            raise invalid("each entry must be an object with id and scale")
        index, scale = entry.get("id"), entry.get("scale", 0.0)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(scales):
            raise invalid(f"Field 'id': there is no adapter {index!r}", param="id")
        if not isinstance(scale, int | float) or isinstance(scale, bool):
            raise invalid("Field 'scale': must be a number", param="scale")
        scales[index] = float(scale)
    return scales


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
