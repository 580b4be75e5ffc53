"""The threads where grammars are compiled and looked into."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from engine_ext.base.errors import GrammarError
from engine_ext.threads.fair_threads import FairThreads

T = TypeVar("T")

# Bytes of a grammar that compiles in milliseconds, nearly always.
_SHORT_BYTES: Final = 4096
_N_LONG_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """`compile_s`: what compiling may take; `wait_s`: how long it may wait for a thread;
    `n_waiting_max`: how many may, of each client."""

    compile_s: float
    wait_s: float
    n_waiting_max: int


class GrammarThreads:
    """Where grammars are looked into: short ones have a thread that none of the others gets.

    What takes long to compile is long, with exceptions: then short ones wait for each other.
    """

    def __init__(self, limits: GrammarLimits) -> None:
        self._limits = limits
        self._short = FairThreads("grammars", 1, limits.n_waiting_max)
        self._long = FairThreads("long grammars", _N_LONG_THREADS, limits.n_waiting_max)

    async def run(self, work: Callable[[], T], n_bytes: int) -> T:
        """`work` on a grammar of so many bytes.

        Raises: EngineBusy if it waits too long; GrammarError if it takes too long, then goes on.
        """
        threads = self._short if n_bytes <= _SHORT_BYTES else self._long
        limit_s = self._limits.compile_s
        try:
            return await threads.run(work, wait_s=self._limits.wait_s, limit_s=limit_s)
        except TimeoutError:
            raise GrammarError(f"it takes more than {limit_s:g} s to compile") from None

    def stop(self) -> None:
        """Begin nothing new; what runs is bounded and finishes alone."""
        self._short.stop()
        self._long.stop()
