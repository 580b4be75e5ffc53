"""What llama-server has and this server has not: the same statuses and texts, not a bare 404."""

from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.body import read_json
from unpaced.http.errors import JSON_TYPE, invalid, not_found, not_supported
from unpaced.http.routing import Routes
from unpaced.routes.parts import host_of

routes = Routes("unserved")

_DISABLED: Final = {"error": {"message": "this feature is disabled", "type": "feature_disabled"}}


@routes.post("/embedding")
@routes.post("/embeddings")
@routes.post("/v1/embeddings")
async def embeddings(_: Request) -> Response:
    """501."""
    raise not_supported("This server does not support embeddings: it generates text only")


@routes.post("/rerank")
@routes.post("/reranking")
@routes.post("/v1/rerank")
@routes.post("/v1/reranking")
async def rerank(_: Request) -> Response:
    """501."""
    raise not_supported("This server does not support reranking: it generates text only")


@routes.post("/audio/transcriptions")
@routes.post("/v1/audio/transcriptions")
async def transcriptions(_: Request) -> Response:
    """501."""
    raise not_supported("The current model does not support audio input.")


@routes.get("/tools")
@routes.post("/tools")
@routes.get("/cors-proxy")
@routes.post("/cors-proxy")
async def disabled(_: Request) -> Response:
    """403: built-in tools and the proxy of llama-server's web page."""
    return _json(_DISABLED, 403)


@routes.post("/props")
async def change_props(request: Request) -> Response:
    """501 unless `--props`; nothing can be changed with it either."""
    if not host_of(request).settings.props:
        raise not_supported(
            "This server does not support changing global properties. Start it with `--props`"
        )
    return _json({"success": True})


@routes.get("/v1/stream", query=("conv_id",))
async def resume_stream(request: Request) -> Response:
    """404: no stream is kept to be resumed."""
    _check_conversation(request)
    raise not_found("no stream is kept to be resumed")


@routes.delete("/v1/stream", query=("conv_id",))
async def drop_stream(request: Request) -> Response:
    """204: no stream is kept afterwards."""
    _check_conversation(request)
    return Response(status_code=204)


@routes.post("/v1/streams/lookup")
async def lookup_streams(request: Request) -> Response:
    """The kept streams: there are none."""
    await read_json(request)
    return _json([])


def _check_conversation(request: Request) -> None:
    if not request.query_params.get("conv_id"):
        raise invalid("Missing conversation id in path")


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status_code=status, media_type=JSON_TYPE)
