"""GET /metrics for Prometheus."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from unpaced.http.errors import not_supported
from unpaced.http.exact_name import ExactName
from unpaced.http.routing import Routes
from unpaced.routes.parts import host_of, metrics_page_of

routes = Routes("metrics")


@routes.get("/metrics", query=("name[]",))
async def metrics(request: Request) -> Response:
    """Our metrics, then other servers' names (--metrics-compat); text format 0.0.4.

    `?name[]=...`, once for each name, leaves out all others, as in Prometheus' client libraries.
    """
    if not host_of(request).settings.metrics:
        raise not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )
    page = metrics_page_of(request)
    # Rendering takes milliseconds: another thread's, not the streams'.
    wanted = frozenset(request.query_params.getlist("name[]"))
    render = partial(page.render_some, wanted) if wanted else page.render
    text = await asyncio.to_thread(render)
    response = Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
    started_at = str(int(page.started_at)).encode()
    response.raw_headers.append((ExactName(b"Process-Start-Time-Unix"), started_at))
    return response
