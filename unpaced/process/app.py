"""The ASGI application: routes, middleware, one error handler, the engine's life."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from engine_ext import BuildInfo, read_build_info, turn_taker
from unpaced.chat.templates import ChatTemplates
from unpaced.completion.admission import Admission
from unpaced.completion.completions import Completions
from unpaced.description.openapi import openapi_route
from unpaced.http.api_keys import ApiKeys
from unpaced.http.cors import CorsPolicy
from unpaced.http.direct_routes import DirectRoutes
from unpaced.http.errors import REFUSALS, handle_error
from unpaced.http.gate import Gate
from unpaced.http.hosts import HostPolicy
from unpaced.http.middleware import RequestMiddleware
from unpaced.http.routing import Routes
from unpaced.metrics.gpu_collector import GpuCollector
from unpaced.metrics.gpu_watch import GpuWatch
from unpaced.metrics.live_collector import LiveCollector
from unpaced.metrics.loop_lag import LoopLag
from unpaced.metrics.metrics import Metrics
from unpaced.metrics.page import MetricsPage
from unpaced.metrics.restarts import RestartCollector
from unpaced.process.life import Life
from unpaced.process.past_servers import PastServers
from unpaced.process.sleep import Sleep
from unpaced.request.model_host import ModelHost
from unpaced.routes import (
    chat,
    completions,
    control,
    health,
    infill,
    lora,
    messages,
    metrics,
    models,
    responses,
    slots,
    tokenizer_info,
    tokens,
    unserved,
)
from unpaced.routes.page import page_routes
from unpaced.routes.vertex import VertexAi
from unpaced.settings import Settings

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.traces.traces import Traces

# NVML answers within milliseconds, at its start within seconds.
_GPU_DEADLINE_S: Final = 10.0
_ROUTES: Final = (
    chat,
    completions,
    control,
    health,
    infill,
    lora,
    messages,
    metrics,
    models,
    slots,
    responses,
    tokenizer_info,
    tokens,
    unserved,
)


def create_app(
    engine: "Engine", settings: Settings, new_engine: "Callable[[], Engine] | None" = None
) -> Starlette:
    """The application. Its lifespan loads the model in the background and stops the engine.

    `new_engine` makes another engine of the same configuration, for --sleep-idle-seconds.

    `app.state` has the parts that routes find by `unpaced.routes.parts`; `app.state.loaded` is the
    task that loads, and fails with engine_ext's ModelLoadError.

    Raises: ValueError beginning with a setting's name.
    """
    build = read_build_info()
    host = ModelHost(engine, settings, fingerprint=f"b1-{build.llama_commit[:7]}")
    metrics = Metrics(host.names.aliases)
    traces = _traces(metrics, build) if settings.traces else None
    gate = Gate(metrics.rejected)
    admission = Admission(
        settings.n_slots,
        settings.max_queue_requests,
        settings.max_queue_tokens,
        on_refusal=partial(metrics.rejected, "queue_full"),
    )
    templates = ChatTemplates(settings)
    sleep = None
    if new_engine is not None and settings.sleep_idle_seconds > 0:
        sleep = Sleep(host, settings.sleep_idle_seconds, new_engine)
    loop_lag, gpu_watch = LoopLag(), _gpu_watch(settings, build)
    groups = described_routes()
    prefix, keys = settings.api_prefix, settings.read_api_keys()
    endpoints = [route for group in groups for route in group.served(prefix)]
    openapi = openapi_route(groups, prefix, has_keys=bool(keys))
    app = Starlette(
        routes=[openapi, *endpoints, *page_routes(settings)],
        middleware=[
            Middleware(
                RequestMiddleware,
                gate,
                prefix=prefix,
                keys=ApiKeys(keys),
                hosts=HostPolicy(settings, has_keys=bool(keys)),
                cors=CorsPolicy(settings),
                check_room=lambda: admission.check_room(client=turn_taker.get()),
                awake=None if sleep is None else sleep.awake,
                has_page=settings.ui and settings.path is None,
                on_answered=metrics.answered,
                on_concluded=None if traces is None else traces.conclude,
            ),
            Middleware(DirectRoutes, routes=endpoints),
        ],
        exception_handlers={kind: handle_error for kind in (*REFUSALS, Exception)},
        lifespan=Life(host, gate, admission, templates, sleep, loop_lag, gpu_watch, traces).run,
    )
    app.router.redirect_slashes = False
    app.state.limits = settings
    app.state.gate = gate
    app.state.host = host
    completions = app.state.completions = Completions(host, admission, metrics)
    app.state.templates = templates
    app.state.metrics = metrics
    metrics.registry.register(LiveCollector(host, admission, completions.slots, loop_lag, build))
    past = PastServers.of_environment() or PastServers()
    metrics.registry.register(RestartCollector(past.restarts, past.last_cause, past.n_refused))
    if gpu_watch is not None:
        metrics.registry.register(GpuCollector(gpu_watch))
    app.state.metrics_page = MetricsPage(metrics, host, admission, completions.slots)
    return app


def _gpu_watch(settings: Settings, build: BuildInfo) -> GpuWatch | None:
    is_on = settings.gpu_metrics == "on" or (settings.gpu_metrics == "auto" and build.gpu == "CUDA")
    if not (is_on and settings.metrics):
        return None
    return GpuWatch(settings.gpu_metrics_interval, _GPU_DEADLINE_S)


def _traces(metrics: Metrics, build: BuildInfo) -> "Traces":
    """Raises: ValueError where the extra is not installed, or a variable asks for another way."""
    try:
        from unpaced.traces.traces import Traces
    except ImportError as error:
        raise ValueError(
            f"traces: needs {error.name}, which is not installed: pip install 'unpaced[otel]'"
        ) from None
    except ValueError as error:  # OTEL_PROPAGATORS, which is read by the import
        raise ValueError(f"traces: {error}") from error
    return Traces(metrics.registry, build.version)


def described_routes() -> list[Routes]:
    """Every group of routes that this server has."""
    groups = [module.routes for module in _ROUTES]
    vertex = VertexAi.from_environment()
    if vertex is not None:
        from unpaced.routes.predict import predict_routes

        groups.append(predict_routes(vertex, tuple(groups)))
    return groups
