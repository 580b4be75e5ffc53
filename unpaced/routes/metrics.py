"""GET /metrics for Prometheus."""

import asyncio

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.errors import not_supported
from unpaced.http.exact_name import ExactName
from unpaced.http.routing import Routes
from unpaced.routes.parts import host_of, metrics_of

routes = Routes("metrics")


@routes.get("/metrics")
async def metrics(request: Request) -> Response:
    """Our metrics, then llama-server's names; text format 0.0.4."""
    host = host_of(request)
    if not host.settings.metrics:
        raise not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )
    ours, llamacpp = metrics_of(request)
    # Rendering takes milliseconds: another thread's, not the streams'.
    text = await asyncio.to_thread(generate_latest, ours.registry)
    text += llamacpp.render(host.engine.stats()).encode()
    response = Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
    started_at = str(int(ours.started_at)).encode()
    response.raw_headers.append((ExactName(b"Process-Start-Time-Unix"), started_at))
    return response
