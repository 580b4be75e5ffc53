"""What llama-server has and this server has not: the same statuses and texts, not a bare 404."""

from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from server.body import read_json
from server.errors import JSON_TYPE, invalid, not_found, not_supported
from server.state import state_of

router = APIRouter(tags=["unserved"])

_DISABLED: Final = {"error": {"message": "this feature is disabled", "type": "feature_disabled"}}


@router.post("/embedding")
@router.post("/embeddings")
@router.post("/v1/embeddings")
async def embeddings() -> Response:
    """501."""
    raise not_supported("This server does not support embeddings. Start it with `--embeddings`")


@router.post("/rerank")
@router.post("/reranking")
@router.post("/v1/rerank")
@router.post("/v1/reranking")
async def rerank() -> Response:
    """501."""
    raise not_supported("This server does not support reranking. Start it with `--reranking`")


@router.post("/audio/transcriptions")
@router.post("/v1/audio/transcriptions")
async def transcriptions() -> Response:
    """501."""
    raise not_supported("The current model does not support audio input.")


@router.get("/tools")
@router.post("/tools")
@router.get("/cors-proxy")
@router.post("/cors-proxy")
async def disabled() -> Response:
    """403: built-in tools and the proxy of llama-server's web page."""
    return _json(_DISABLED, 403)


@router.post("/props")
async def change_props(request: Request) -> Response:
    """501 unless `--props`; nothing can be changed with it either."""
    if not state_of(request).settings.props:
        raise not_supported(
            "This server does not support changing global properties. Start it with `--props`"
        )
    return _json({"success": True})


@router.get("/v1/stream")
async def resume_stream(conv_id: str = "") -> Response:
    """404: no stream is kept to be resumed."""
    _check_conversation(conv_id)
    raise not_found()


@router.delete("/v1/stream")
async def drop_stream(conv_id: str = "") -> Response:
    """204: none is kept afterwards."""
    _check_conversation(conv_id)
    return Response(status_code=204)


@router.post("/v1/streams/lookup")
async def lookup_streams(request: Request) -> Response:
    """The kept streams: none."""
    await read_json(request)
    return _json([])


def _check_conversation(conv_id: str) -> None:
    if not conv_id:
        raise invalid("Missing conversation id in path")


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status_code=status, media_type=JSON_TYPE)
