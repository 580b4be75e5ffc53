"""The ASGI application: routes, middleware, one error handler, the engine's life."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from engine_ext import BuildInfo, DecodeLoop, EngineState, read_build_info
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
from unpaced.metrics.llamacpp_metrics import LlamacppMetrics
from unpaced.metrics.metrics import LiveCollector, Metrics
from unpaced.process.life import Life
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
    """
    build = read_build_info()
    metrics = Metrics()
    gate = Gate(metrics.rejected)
    admission = Admission(
        settings.n_slots,
        settings.max_queue_requests,
        settings.max_queue_tokens,
        on_refusal=partial(metrics.rejected, "queue_full"),
    )
    host = ModelHost(engine, settings, fingerprint=f"b1-{build.llama_commit[:7]}")
    templates = ChatTemplates(settings)
    sleep = None
    if new_engine is not None and settings.sleep_idle_seconds > 0:
        sleep = Sleep(host, settings.sleep_idle_seconds, new_engine)
    groups = _groups()
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
                check_room=admission.check_room,
                awake=None if sleep is None else sleep.awake,
                on_answered=metrics.answered,
            ),
            Middleware(DirectRoutes, routes=endpoints),
        ],
        exception_handlers={kind: handle_error for kind in (*REFUSALS, Exception)},
        lifespan=Life(host, gate, admission, templates, sleep).run,
    )
    app.router.redirect_slashes = False
    _collect(metrics, host, admission, build)
    app.state.limits = settings
    app.state.gate = gate
    app.state.host = host
    app.state.completions = Completions(host, admission, metrics)
    app.state.templates = templates
    app.state.metrics = metrics
    app.state.llamacpp_metrics = LlamacppMetrics(metrics, admission)
    return app


def _collect(metrics: Metrics, host: ModelHost, admission: Admission, build: BuildInfo) -> None:
    """Have a scrape read the engine's counters and the queue."""

    def decode_loop() -> DecodeLoop | None:
        engine = host.engine
        return engine.decode_loop if engine.state is EngineState.READY else None

    LiveCollector(
        metrics,
        lambda: host.engine.stats(),
        lambda: (admission.n_running, admission.n_waiting, admission.n_tokens_waiting),
        {
            "version": build.version,
            "llama_commit": build.llama_commit,
            "profile": build.profile,
        },
        decode_loop,
    )


def _groups() -> list[Routes]:
    groups = [module.routes for module in _ROUTES]
    vertex = VertexAi.from_environment()
    if vertex is not None:
        from unpaced.routes.predict import predict_routes

        groups.append(predict_routes(vertex, tuple(groups)))
    return groups
