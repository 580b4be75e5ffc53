"""Whether the engine is still there: its decode thread may hang, or have lost its GPU."""

import time
from typing import TYPE_CHECKING, Final

from engine_ext import EngineState

if TYPE_CHECKING:
    from engine_ext import Engine

ENGINE_LOST: Final = 70
"""Exit status of a process whose engine is lost: sysexits' EX_SOFTWARE. Start it again."""


class EngineWatch:
    """Look every `period_s`; an engine that shows no progress for `limit_s` (0: ever) is lost.

    Where kernels are compiled as it goes, it has more patience: DecodeLoop.patience.
    """

    def __init__(self, limit_s: float, period_s: float) -> None:
        self._limit_s = limit_s
        self._period_s = period_s
        self._progress: int | None = None
        self._since = 0.0
        self._looked_at = 0.0

    def look(self, engine: "Engine", now: float | None = None) -> str | None:
        """Why it is lost; None: it is well. Only of an engine that has been ready."""
        now = time.monotonic() if now is None else now
        # This process stood still itself: what the engine did meanwhile says nothing.
        was_away = now - self._looked_at > 3 * self._period_s
        self._looked_at = now
        if engine.state is EngineState.FAILED:
            return engine.error or "the decode thread has failed"
        progress = engine.progress
        if progress is None or progress != self._progress or was_away:
            self._progress, self._since = progress, now
        elif 0 < self._limit_s * engine.decode_loop.patience < now - self._since:
            return f"the decode thread has not moved for {now - self._since:.0f} s"
        return None
