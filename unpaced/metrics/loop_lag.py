"""How late the event loop is: what every stream of the front end waits."""

import asyncio
import time
from typing import Final

from unpaced.metrics.histogram import Histogram

_EVERY_S: Final = 0.25
# uvloop's timers are whole milliseconds: less says nothing.
_SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Looks four times a second. Event loop's thread only."""

    def __init__(self) -> None:
        self.histogram = Histogram(_SECONDS)
        """Seconds by which a timer came too late."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._due = time.monotonic() + _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.histogram.observe(max(0.0, time.monotonic() - self._due))
        self.start()
