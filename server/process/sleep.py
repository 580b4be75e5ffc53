"""Frees the model after a while without requests, and loads it again for the next one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import structlog

from engine_ext import EngineError
from server.completion.visible_tokens import VisibleTokens
from server.http.errors import unavailable

if TYPE_CHECKING:
    from engine_ext import Engine
    from server.completion.state import ServerState


_UNLIMITED_S: Final = 1e9


class Sleep:
    """Counts the requests that need the model. Event loop's thread only.

    While the server sleeps `state.engine` is the stopped engine, which still knows the model.
    """

    def __init__(
        self, state: "ServerState", idle_s: float, new_engine: "Callable[[], Engine]"
    ) -> None:
        self._state = state
        self._idle_s = idle_s
        self._new_engine = new_engine
        self._n_users = 0
        self._is_asleep = False
        self._turning = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.stdlib.get_logger("unpaced")

    @property
    def is_asleep(self) -> bool:
        """Whether the model is not in memory."""
        return self._is_asleep

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """The model is there inside. Raises: ApiError 503 if it cannot be loaded again."""
        self._n_users += 1
        self.stop_waiting()
        try:
            if self._is_asleep or self._turning.locked():
                await self._wake()
            yield
        finally:
            self._n_users -= 1
            self.start_waiting()

    def start_waiting(self) -> None:
        """Fall asleep unless a request comes in time."""
        if self._idle_s > 0 and self._n_users == 0 and not self._is_asleep:
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
            if self._n_users == 0 and not self._is_asleep:
                self._is_asleep = True
                # To free much memory may take long, and nobody waits for it.
                await self._state.engine.stop(self._state.settings.stall_timeout or _UNLIMITED_S)
                self._log.info("asleep", idle_seconds=self._idle_s)

    async def _wake(self) -> None:
        async with self._turning:
            if not self._is_asleep:
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
            state = self._state
            state.engine = engine
            state.visible_tokens = VisibleTokens(engine, special=state.settings.special)
            self._is_asleep = False
