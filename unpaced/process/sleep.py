"""Frees the model after a while without requests, and loads it again for the next one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import structlog

from engine_ext import EngineError
from unpaced.http.errors import unavailable

if TYPE_CHECKING:
    from engine_ext import Engine
    from unpaced.request.model_host import ModelHost

_UNLIMITED_S: Final = 1e9


class Sleep:
    """Counts the requests that need the model. Event loop's thread only."""

    def __init__(
        self, host: "ModelHost", idle_s: float, new_engine: "Callable[[], Engine]"
    ) -> None:
        self._host = host
        self._idle_s = idle_s
        self._new_engine = new_engine
        self._n_users = 0
        self._turning = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.stdlib.get_logger("unpaced")

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """The model is there inside. Raises: ApiError 503 if it cannot be loaded again."""
        self._n_users += 1
        self.stop_waiting()
        try:
            if self._host.is_asleep or self._turning.locked():
                await self._wake()
            yield
        finally:
            self._n_users -= 1
            self.start_waiting()

    def start_waiting(self) -> None:
        """Fall asleep unless a request comes in time."""
        if self._idle_s > 0 and self._n_users == 0 and not self._host.is_asleep:
            self.stop_waiting()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._idle_s, self._fall_asleep)

    def stop_waiting(self) -> None:
        """Stay awake."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fall_asleep(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._sleep())

    async def _sleep(self) -> None:
        async with self._turning:
            if self._n_users == 0 and not self._host.is_asleep:
                self._host.is_asleep = True
                # To free much memory may take long, and nobody waits for it.
                await self._host.engine.stop(self._host.settings.stall_timeout or _UNLIMITED_S)
                self._log.info("asleep", idle_seconds=self._idle_s)

    async def _wake(self) -> None:
        async with self._turning:
            if not self._host.is_asleep:
                return
            self._log.info("waking")
            engine = self._new_engine()
            try:
                await engine.start()
            except BaseException as error:
                await engine.stop()
                if isinstance(error, EngineError):
                    raise unavailable(str(error)) from None
                raise
            self._host.wake_with(engine)
