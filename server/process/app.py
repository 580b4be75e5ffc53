"""The ASGI application: routes, middleware, one error handler, the engine's life."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware

from engine_ext import EngineState, read_build_info
from server.chat.templates import ChatTemplates
from server.completion.admission import Admission
from server.completion.slot_table import SlotTable
from server.completion.state import Phase, ServerState
from server.completion.visible_tokens import VisibleTokens
from server.description.openapi import openapi_route
from server.http.direct_routes import DirectRoutes
from server.http.errors import REFUSALS, ApiError, handle_error, unavailable
from server.http.middleware import RequestMiddleware
from server.http.routing import Routes
from server.http.vertex import VertexAi
from server.metrics.llamacpp_metrics import LlamacppMetrics
from server.metrics.metrics import LiveCollector, Metrics
from server.process.sleep import Sleep
from server.routes import (
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
from server.routes.chat_modules import import_chat
from server.routes.page import page_routes
from server.settings import Settings
from server.settings.model_defaults import with_model_defaults

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
_CHAT_AFTER_S: Final = 1.0
# For how long a thread that looks into a grammar may keep the event loop from the interpreter:
# Python's 5 ms come several times in each turn of the loop.
_SWITCH_S: Final = 0.0005


def create_app(
    engine: "Engine", settings: Settings, new_engine: "Callable[[], Engine] | None" = None
) -> Starlette:
    """The application. Its lifespan loads the model in the background and stops the engine.

    `new_engine` makes another engine of the same configuration, for --sleep-idle-seconds.

    `app.state.server` holds what routes share; `app.state.loaded` is the task that loads, and
    fails with engine_ext's ModelLoadError.
    """
    state = _make_state(engine, settings)
    if new_engine is not None and settings.sleep_idle_seconds > 0:
        state.sleep = Sleep(state, settings.sleep_idle_seconds, new_engine)
    groups = _groups()
    prefix = settings.api_prefix
    endpoints = [route for group in groups for route in group.served(prefix)]
    openapi = openapi_route(groups, prefix, has_keys=bool(settings.read_api_keys()))
    app = Starlette(
        routes=[openapi, *endpoints, *page_routes(settings)],
        middleware=[
            Middleware(RequestMiddleware, state=state),
            Middleware(DirectRoutes, routes=endpoints),
        ],
        exception_handlers={kind: handle_error for kind in (*REFUSALS, Exception)},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.server = state
    return app


def _groups() -> list[Routes]:
    groups = [module.routes for module in _ROUTES]
    vertex = VertexAi.from_environment()
    if vertex is not None:
        from server.routes.predict import predict_routes

        groups.append(predict_routes(vertex, tuple(groups)))
    return groups


def _make_state(engine: "Engine", settings: Settings) -> ServerState:
    counters = Metrics()
    admission = Admission(
        settings.n_slots,
        settings.max_queue_requests,
        settings.max_queue_tokens,
        on_refusal=partial(counters.rejected, "queue_full"),
    )
    build = read_build_info()
    state = ServerState(
        engine=engine,
        settings=settings,
        admission=admission,
        slots=SlotTable(settings.n_slots),
        metrics=counters,
        llamacpp=LlamacppMetrics(counters, admission),
        chat=ChatTemplates(settings),
        visible_tokens=VisibleTokens(engine, special=settings.special),
        fingerprint=f"b1-{build.llama_commit[:7]}",
    )
    LiveCollector(
        counters,
        lambda: state.engine.stats(),
        lambda: (admission.n_running, admission.n_waiting, admission.n_tokens_waiting),
        {
            "version": build.version,
            "llama_commit": build.llama_commit,
            "profile": build.profile,
        },
        lambda: state.engine.decode_loop if state.engine.state is EngineState.READY else None,
    )
    return state


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    sys.setswitchinterval(_SWITCH_S)
    state: ServerState = app.state.server
    app.state.loaded = asyncio.create_task(_load(state))
    chat_ready = asyncio.create_task(_prepare_chat(state, app.state.loaded))
    try:
        yield
    finally:
        state.phase = Phase.DRAINING
        if state.sleep is not None:
            state.sleep.stop_waiting()
        state.admission.refuse_waiting(unavailable("the server is stopping"))
        app.state.loaded.cancel()
        chat_ready.cancel()
        await state.engine.stop()
        state.chat.close()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await app.state.loaded
        gc.unfreeze()  # or cycles that hold native objects outlive the interpreter


async def _load(state: ServerState) -> None:
    await state.engine.start()
    metadata = state.engine.model.sampling_metadata
    state.settings = with_model_defaults(state.settings, metadata)
    # What start-up made lives until the end: the collector need not look at it.
    gc.freeze()
    gc.enable()
    if state.phase is Phase.LOADING:
        state.phase = Phase.READY
        if state.sleep is not None:
            state.sleep.start_waiting()


async def _prepare_chat(state: ServerState, loaded: "asyncio.Task[None]") -> None:
    """Have chat ready before the first request that needs it, unless that comes first.

    Its modules and the template process cost a third of a start, so they do not compete with one
    that is quick; beside a large model that takes its time to load they are free.
    """
    await asyncio.sleep(_CHAT_AFTER_S)
    await import_chat()
    await state.chat.start()
    await asyncio.wait([loaded])
    if state.phase is Phase.READY:
        with contextlib.suppress(ApiError):  # tried again with the first request
            await state.chat.load(state.engine.model)
