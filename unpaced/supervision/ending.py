"""How a server ended, for the log, for a metric and for the exit status."""

import signal
from dataclasses import dataclass

from unpaced.process.engine_watch import ENGINE_LOST


@dataclass(frozen=True, slots=True)
class Ending:
    """`code`: the exit status, or minus the signal that ended it. `hang`: what the supervisor found
    wrong before it ended the server itself; empty: nothing. `was_ready`: it had been ready to
    serve; `lived_s`: for how many seconds since then. `was_heard`: it had begun to accept
    clients."""

    code: int
    hang: str = ""
    was_ready: bool = False
    lived_s: float = 0.0
    was_heard: bool = True

    @property
    def reason(self) -> str:
        """One of `past_servers.REASONS`."""
        if self.hang:
            return "hang"
        if self.code < 0:
            return "signal"
        return "engine_lost" if self.code == ENGINE_LOST else "exit"

    @property
    def cause(self) -> str:
        """In words."""
        if self.hang:
            return self.hang
        if self.code < 0:
            return f"was killed by {_name_of(-self.code)}"
        if self.code == ENGINE_LOST:
            return f"ended with status {ENGINE_LOST}: the engine was lost"
        return f"ended with status {self.code}"

    @property
    def exit_status(self) -> int:
        """What a shell makes of it: the status, or 128 and the signal."""
        return 128 - self.code if self.code < 0 else self.code


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
