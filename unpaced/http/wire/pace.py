"""How many connections a turn of the event loop may begin: measured time says, not a count."""

from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.003
N_MIN: Final = 4
N_MAX: Final = 16


class Pace:
    """Begins fewer in a turn after one that took longer than `TURN_S`, more after a short one.

    What a connection costs is not known when it is handed over: most of it comes a turn later, and
    whoever else uses the processor makes it longer. So turns are measured. A probe needs three of
    them, and where others take the front end's core each can be five times as long as its work.
    Who has begun is served in every turn, so that with fewer than `N_MIN` the last of some fifty
    clients would begin after the first had been answered ten times.
    `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._n = N_MAX
        self._last: float | None = None  # the beginning of the turn before

    def n_of_turn(self) -> int:
        """How many to begin now; call it once a turn, from one turn to the next."""
        now = self._clock()
        if self._last is not None:
            took = now - self._last
            if took > TURN_S:
                self._n = max(N_MIN, self._n // 2)
            elif took < TURN_S / 2:
                self._n = min(N_MAX, 2 * self._n)
        self._last = now
        return self._n

    def rest(self) -> None:
        """Nobody waits: the time until somebody does is no turn's."""
        self._last = None
