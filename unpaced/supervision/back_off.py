"""How long to wait before the next server is started, and when to give up."""

from typing import Final

from unpaced.supervision.ending import Ending

N_FAILED_MAX: Final = 5
"""Starts in a row that may fail, before whoever started the supervisor shall decide."""
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0
_LONG_ENOUGH_S: Final = 10.0
_TO_BE_PUT_RIGHT: Final = 1
"""The exit status of a server that was started in a wrong way: a flag, the model, a port."""


class BackOff:
    """Asked once for each server that ended without having been told to."""

    def __init__(self) -> None:
        self._n_failed = 0
        self._has_served = False

    def seconds(self, ending: Ending) -> float | None:
        """Seconds to wait; None: give up.

        A server that was ready is replaced at once, and after a second where it did not live long.
        Starts that fail wait for 1, 2, 4 ... seconds. Where none has ever been ready, what somebody
        has to put right ends it at once.
        """
        if ending.was_ready:
            self._has_served, self._n_failed = True, 0
            return 0.0 if ending.lived_s >= _LONG_ENOUGH_S else _FIRST_S
        self._n_failed += 1
        is_hopeless = ending.code == _TO_BE_PUT_RIGHT and not self._has_served
        if is_hopeless or self._n_failed >= N_FAILED_MAX:
            return None
        wait_s: float = _FIRST_S * 2 ** (self._n_failed - 1)
        return min(_LONGEST_S, wait_s)
