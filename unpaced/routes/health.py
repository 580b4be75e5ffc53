"""Is the process alive, is the model loaded, does the decode thread move."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from engine_ext import EngineState
from unpaced.http.errors import JSON_TYPE, error_response, unavailable
from unpaced.http.gate import Gate, Phase
from unpaced.http.routing import Routes
from unpaced.request.model_host import ModelHost
from unpaced.routes.parts import gate_of, host_of

routes = Routes("health")


@routes.get("/health")
@routes.get("/v1/health")
async def health(_: Request) -> Response:
    """llama-server's: 200 once the model is loaded; before, the middleware answers 503."""
    return _ok({"status": "ok"})


@routes.get("/health/live")
async def live(_: Request) -> Response:
    """200 as long as the event loop turns, loading and draining included."""
    return _ok({"status": "ok"})


@routes.get("/health/ready")
async def ready(request: Request) -> Response:
    """200 if a request would be served now; the decode thread's heartbeat is looked at."""
    reason = _why_not_ready(gate_of(request), host_of(request))
    return _ok({"status": "ok"}) if reason is None else error_response(unavailable(reason))


def _why_not_ready(gate: Gate, host: ModelHost) -> str | None:
    if gate.phase is Phase.LOADING:
        return f"Loading model ({host.engine.load_progress:.0%})"
    if gate.phase is Phase.DRAINING:
        return "the server is shutting down"
    if gate.phase is Phase.FAILED:
        return f"the engine has failed: {gate.failure}"
    if host.is_asleep:
        return None  # the next request wakes it
    stats = host.engine.stats()
    if stats.state is not EngineState.READY:
        return f"the engine is {stats.state.name.lower()}"
    # Early, so that nobody is sent here any more when it counts as lost.
    limit_s = host.settings.stall_timeout * host.engine.decode_loop.patience
    if 0 < limit_s < 2 * stats.heartbeat_age_s:
        return f"the decode thread has not moved for {stats.heartbeat_age_s:.0f} s"
    return None


def _ok(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type=JSON_TYPE)
