"""GET /metrics for Prometheus."""

import asyncio

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response

from server.completion.state import state_of
from server.http.errors import not_supported
from server.http.exact_name import ExactName
from server.http.routing import Routes

routes = Routes("metrics")


@routes.get("/metrics")
async def metrics(request: Request) -> Response:
    """Our metrics, then llama-server's names; text format 0.0.4."""
    state = state_of(request)
    if not state.settings.metrics:
        raise not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )
    # Rendering takes milliseconds: another thread's, not the streams'.
    ours = await asyncio.to_thread(generate_latest, state.metrics.registry)
    text = ours + state.llamacpp.render(state.engine.stats()).encode()
    response = Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
    started_at = str(int(state.started_at)).encode()
    response.raw_headers.append((ExactName(b"Process-Start-Time-Unix"), started_at))
    return response
