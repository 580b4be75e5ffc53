"""Whether the engine is still there: its decode thread may hang, or have lost its GPU."""

import time
from typing import TYPE_CHECKING, Final

from engine_ext import COMPILING_PATIENCE, EngineState

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
        self.silence_s = 0.0
        """How long the decode thread had not moved at the latest `look`, though it should have."""

    def look_at_load(self, engine: "Engine") -> str | None:
        """Why an engine that loads is lost; None: it is well, as far as one can tell.

        Reading a model may take any time; only tests of the GPU's kernels are known to be short.
        """
        silence_s, compiles = engine.gpu_test
        if not 0 < self._limit_s * (COMPILING_PATIENCE if compiles else 1) < silence_s:
            return None
        return (
            f"the GPU has given no sign of life for {silence_s:.0f} s in the tests of its kernels; "
            "--decode-loop host does without them"
        )

    def is_moving(self, engine: "Engine") -> bool:
        """Whether the latest `look` found progress or nothing to do; what a watchdog is told.

        A watchdog knows nothing of kernels that are compiled, so that the patience with them is
        taken off here. Without a limit (0) nobody asks for progress.
        """
        if self._limit_s == 0 or self.silence_s == 0 or engine.state is not EngineState.READY:
            return True
        return self.silence_s <= self._limit_s * (engine.decode_loop.patience - 1)

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
        self.silence_s = now - self._since
        is_silent = self.silence_s > 0
        if is_silent and 0 < self._limit_s * engine.decode_loop.patience < self.silence_s:
            return f"the decode thread has not moved for {self.silence_s:.0f} s"
        return None
