"""When a server that says nothing counts as hung."""

from typing import Final

from unpaced.settings import Settings
from unpaced.supervision.child import Child

_TURN_LIMIT_S: Final = 20.0
_MARGIN_S: Final = 10.0
"""For open connections and last log lines, which a server gives some seconds at its end."""


class HangLimits:
    """A server says something every second: its event loop turns. It says that all is well as long
    as its decode thread moves, too; it looks after that itself, so that it can tell its clients,
    and gets the time for it. With --stall-timeout 0 nobody looks for a hang. Limits are seconds.
    """

    def __init__(self, settings: Settings) -> None:
        self._stall_s = settings.stall_timeout
        self._turn_s = min(_TURN_LIMIT_S, self._stall_s)
        self.beat_s = 0.0
        """How long a server that is ready may be without a word that all is well; 0: for ever."""
        if self._stall_s > 0:
            self.beat_s = self._stall_s + settings.stop_timeout + _MARGIN_S
        self._end_s = settings.drain_timeout + settings.stop_timeout + 2 * _MARGIN_S

    def why(self, child: Child, now_s: float) -> str:
        """What is wrong with it, in words; empty: nothing."""
        if self._stall_s == 0 or child.heard_s is None:
            return ""
        if child.stopping_s is not None:
            lasts_s = now_s - child.stopping_s
            return f"it has not ended within {lasts_s:.0f} s" if lasts_s > self._end_s else ""
        silent_s = now_s - child.heard_s
        if silent_s > (self._stall_s if child.ready_s is None else self._turn_s):
            return f"its event loop has not turned for {silent_s:.0f} s"
        if child.beat_s is not None and now_s - child.beat_s > self.beat_s:
            return f"its decode thread has not moved for {now_s - child.beat_s:.0f} s"
        return ""
