"""Vertex AI's predict route: several requests in one body, each for a route of this server."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope

from unpaced.http.body import read_object
from unpaced.http.disconnect import ClientGone, Disconnect
from unpaced.http.errors import JSON_TYPE, ApiError, invalid
from unpaced.http.routing import Routes
from unpaced.routes.health import health
from unpaced.routes.parts import host_of
from unpaced.routes.vertex import VertexAi

_MAX_INSTANCES: Final = 128
_FORMAT: Final = "@requestFormat"


def predict_routes(vertex: VertexAi, groups: Iterable[Routes]) -> Routes:
    """The routes that the environment asks for; predictions come from POST routes of `groups`."""
    routes = Routes("vertex")
    named = _named_routes(groups)

    routes.post(vertex.predict_path)(partial(predict, named=named))
    if vertex.health_path:
        routes.get(vertex.health_path)(health)
    return routes


async def predict(request: Request, named: Mapping[str, str]) -> Response:
    """`{"instances": [...]}` to `{"predictions": [...]}`, in order.

    Each instance names its route in "@requestFormat" as a path or in camel case
    ("chatCompletions"); the rest is that route's body. One that fails has its error as prediction.
    """
    body = await read_object(request)
    instances = body.get("instances")
    if not isinstance(instances, list):
        raise invalid("request body must include an array field named instances")
    if len(instances) > _MAX_INSTANCES:
        raise invalid(f"instances array exceeds maximum size of {_MAX_INSTANCES}")
    prefix = host_of(request).settings.api_prefix
    paths = {name: prefix + path for name, path in named.items()}
    try:
        async with Disconnect(request.receive):
            predictions = await asyncio.gather(
                *(_answer(request, paths, instance) for instance in instances)
            )
    except ClientGone:
        raise ApiError(499, "invalid_request_error", "the client left") from None
    return Response(orjson.dumps({"predictions": predictions}), media_type=JSON_TYPE)


def _named_routes(groups: Iterable[Routes]) -> dict[str, str]:
    """Path of every POST route, by its path and by its name in camel case; /v1's names win."""
    paths = [
        endpoint.path
        for group in groups
        for endpoint in group.endpoints
        if endpoint.method == "POST" and "{" not in endpoint.path
    ]
    named = {path: path for path in paths}
    for path in sorted(paths, key=lambda path: not path.startswith("/v1")):
        named.setdefault(_camel_case(path), path)
    return named


def _camel_case(path: str) -> str:
    """ "/v1/chat/completions" to "chatCompletions"."""
    words = [word for word in re.split(r"[/_-]", path.removeprefix("/v1")) if word]
    return "".join(word if i == 0 else word[:1].upper() + word[1:] for i, word in enumerate(words))


async def _answer(request: Request, paths: Mapping[str, str], instance: object) -> Any:
    if not isinstance(instance, dict):
        return invalid("each instance must be a JSON object").to_json()
    name = instance.get(_FORMAT)
    if not isinstance(name, str):
        return invalid(f"each instance must include a string {_FORMAT}").to_json()
    path = paths.get(name)
    if path is None:
        return invalid(f"no handler registered for {_FORMAT}: {name}").to_json()
    if instance.get("stream"):
        return invalid("Field 'stream': a prediction is not streamed", param="stream").to_json()
    body = {key: value for key, value in instance.items() if key != _FORMAT}
    data = await _post(request.app, request.scope, path, orjson.dumps(body))
    try:
        return orjson.loads(data) if data else None
    except orjson.JSONDecodeError:
        return data.decode(errors="replace")


async def _post(app: ASGIApp, scope: Scope, path: str, body: bytes) -> bytes:
    """The body of the answer to a POST within this process."""
    left_out = (b"content-length", b"transfer-encoding", b"x-request-id")
    headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
    inner = {
        key: scope[key] for key in ("type", "asgi", "http_version", "scheme", "client", "server")
    }
    inner |= {
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": scope.get("root_path", ""),
        "headers": headers,
        "state": {},
    }
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
    parts: list[bytes] = []

    async def send(message: Message) -> None:
        parts.append(message.get("body", b""))

    await app(inner, incoming.get, send)
    return b"".join(parts)
