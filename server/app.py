"""The ASGI application: routes, middleware, one error handler, the engine's life."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from engine_ext.build_info import read_build_info
from engine_ext.stats import EngineState
from server.admission import Admission
from server.chat.templates import ChatTemplates
from server.direct_routes import DirectRoutes
from server.errors import ApiError, handle_error, unavailable
from server.llamacpp_metrics import LlamacppMetrics
from server.metrics import LiveCollector, Metrics
from server.middleware import RequestMiddleware
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
    predict,
    responses,
    slots,
    tokenizer_info,
    tokens,
    unserved,
)
from server.routes.page import add_page
from server.settings import Settings
from server.settings.model_defaults import with_model_defaults
from server.sleep import Sleep
from server.slot_table import SlotTable
from server.state import Phase, ServerState
from server.vertex import VertexAi
from server.visible_tokens import VisibleTokens

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
) -> FastAPI:
    """The application. Its lifespan loads the model in the background and stops the engine.

    `new_engine` makes another engine of the same configuration, for --sleep-idle-seconds.

    `app.state.server` holds what routes share; `app.state.loaded` is the task that loads, and
    fails with engine_ext's ModelLoadError.
    """
    state = _make_state(engine, settings)
    if new_engine is not None and settings.sleep_idle_seconds > 0:
        state.sleep = Sleep(state, settings.sleep_idle_seconds, new_engine)
    app = FastAPI(
        title="Unpaced",
        version=read_build_info().version,
        lifespan=_lifespan,
        openapi_url=f"{settings.api_prefix}/openapi.json",
        docs_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.server = state
    for error in (ApiError, HTTPException, Exception):
        app.add_exception_handler(error, handle_error)
    routers = [module.router for module in _ROUTES]
    vertex = VertexAi.from_environment()
    if vertex is not None:
        routers.append(predict.make_router(vertex, tuple(routers)))
    for router in routers:
        app.include_router(router, prefix=settings.api_prefix)
    add_page(app, settings)
    # The last one added is the outermost.
    app.add_middleware(DirectRoutes, routers=routers, prefix=settings.api_prefix)
    app.add_middleware(RequestMiddleware, state=state)
    return app


def _make_state(engine: "Engine", settings: Settings) -> ServerState:
    admission = Admission(settings.n_slots, settings.max_queue_requests, settings.max_queue_tokens)
    counters = Metrics()
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
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state: ServerState = app.state.server
    app.state.loaded = asyncio.create_task(_load(state))
    try:
        yield
    finally:
        state.phase = Phase.DRAINING
        if state.sleep is not None:
            state.sleep.stop_waiting()
        state.admission.refuse_waiting(unavailable("the server is stopping"))
        app.state.loaded.cancel()
        await state.engine.stop()
        state.chat.close()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await app.state.loaded
        gc.unfreeze()  # or cycles that hold native objects outlive the interpreter


async def _load(state: ServerState) -> None:
    templates = asyncio.create_task(state.chat.start())  # beside the model
    await state.engine.start()
    metadata = state.engine.model.sampling_metadata
    state.settings = with_model_defaults(state.settings, metadata)
    # What start-up made lives until the end: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    if state.phase is Phase.LOADING:
        state.phase = Phase.READY
        if state.sleep is not None:
            state.sleep.start_waiting()
        await templates
        await state.chat.load(state.engine.model)
