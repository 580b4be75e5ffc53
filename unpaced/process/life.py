"""The life of the application: loads the model, has chat ready, stops the engine."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette

from unpaced.chat.templates import ChatTemplates
from unpaced.completion.admission import Admission
from unpaced.http.errors import ApiError, unavailable
from unpaced.http.gate import Gate, Phase
from unpaced.metrics.gpu_watch import GpuWatch
from unpaced.metrics.loop_lag import LoopLag
from unpaced.process.sleep import Sleep
from unpaced.request.model_host import ModelHost
from unpaced.routes.chat_modules import import_chat
from unpaced.settings.model_defaults import with_model_defaults

if TYPE_CHECKING:
    from unpaced.traces.traces import Traces

_CHAT_AFTER_S: Final = 1.0
# For how long a thread that looks into a grammar may keep the event loop from the interpreter:
# Python's 5 ms come several times in each turn of the loop.
_SWITCH_S: Final = 0.0005


class Life:
    """From the application's start to its end.

    `sleep`: None where the model stays in memory. `gpu_watch`: None where nobody asks the GPUs.
    """

    def __init__(
        self,
        host: ModelHost,
        gate: Gate,
        admission: Admission,
        templates: ChatTemplates,
        sleep: Sleep | None,
        loop_lag: LoopLag,
        gpu_watch: GpuWatch | None,
        traces: "Traces | None" = None,
    ) -> None:
        self._host = host
        self._gate = gate
        self._admission = admission
        self._templates = templates
        self._sleep = sleep
        self._loop_lag = loop_lag
        self._gpu_watch = gpu_watch
        self._traces = traces

    @contextlib.asynccontextmanager
    async def run(self, app: Starlette) -> AsyncIterator[None]:
        """Starlette's lifespan. `app.state.loaded` is the task that loads."""
        sys.setswitchinterval(_SWITCH_S)
        loaded = app.state.loaded = asyncio.create_task(self._load())
        chat_ready = asyncio.create_task(self._prepare_chat(loaded))
        try:
            yield
        finally:
            self._gate.phase = Phase.DRAINING
            if self._sleep is not None:
                self._sleep.stop_waiting()
            self._admission.refuse_waiting(unavailable("the server is stopping"))
            loaded.cancel()
            chat_ready.cancel()
            self._loop_lag.stop()
            if self._gpu_watch is not None:
                await self._gpu_watch.stop()
            await self._host.engine.stop()
            self._templates.close()
            if self._traces is not None:
                await self._traces.close()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await loaded
            gc.unfreeze()  # or cycles that hold native objects outlive the interpreter

    async def _load(self) -> None:
        host = self._host
        await host.engine.start()
        host.take_defaults(with_model_defaults(host.settings, host.engine.model.sampling_metadata))
        # What start-up made lives until the end: the collector need not look at it.
        gc.freeze()
        gc.enable()
        self._loop_lag.start()
        if self._gpu_watch is not None:
            self._gpu_watch.start()
        if self._gate.phase is Phase.LOADING:
            self._gate.phase = Phase.READY
            if self._sleep is not None:
                self._sleep.start_waiting()

    async def _prepare_chat(self, loaded: "asyncio.Task[None]") -> None:
        """Have chat ready before the first request that needs it, unless that comes first.

        Its modules and the template process cost a third of a start, so they do not compete with
        one that is quick; beside a large model that takes its time to load they are free. Nor do
        they compete with requests: beside another thread's Python every turn of the event loop
        takes several times as long. So nobody was served for a second before.
        """
        is_idle = False
        while not is_idle:
            await self._admission.idle()
            await asyncio.sleep(_CHAT_AFTER_S)
            is_idle = self._admission.is_idle
        await import_chat()
        await self._templates.start()
        await asyncio.wait([loaded])
        if self._gate.phase is Phase.READY:
            with contextlib.suppress(ApiError):  # tried again with the first request
                await self._templates.load(self._host.engine.model)
