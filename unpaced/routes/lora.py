"""GET and POST /lora-adapters."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_json
from unpaced.http.errors import JSON_TYPE, invalid
from unpaced.http.routing import Routes
from unpaced.routes.parts import host_of
from unpaced.schemas.lora import read_scales, scales_of_all

routes = Routes("lora")


@routes.get("/lora-adapters")
async def adapters(request: Request) -> Response:
    """The adapters of --lora and --lora-scaled, with the factors of requests that name none."""
    host = host_of(request)
    paths = [path for path, _ in host.settings.loras()]
    return _json(
        [
            {"id": i, "path": str(path), "scale": scale, "task_name": "", "prompt_prefix": ""}
            for i, (path, scale) in enumerate(zip(paths, host.lora_scales, strict=True))
        ]
    )


@routes.post("/lora-adapters")
async def set_scales(request: Request) -> Response:
    """The factors of requests that come from now on and name none; an adapter that is not listed
    gets 0."""
    body = await read_json(request)
    if not isinstance(body, list):
        raise invalid("Request body must be an array")
    host = host_of(request)
    try:
        host.lora_scales = scales_of_all(read_scales(body), len(host.settings.loras()))
    except ValueError as error:
        raise invalid(str(error)) from None
    return _json({"success": True})


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
