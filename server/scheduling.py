"""Cores and priority of the process, before any thread is made."""

import os
from collections.abc import Set
from typing import Final

_NICENESS: Final = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}
"""By llama.cpp's number for a priority (llama.cpp 0c1e57098 common/common.cpp:259)."""


class SchedulingError(Exception):
    """The process may not have these cores or this priority; the text says why."""


def use_cores(cores: Set[int]) -> None:
    """Run on no other cores; threads made later neither. Empty: as it is.

    Raises: SchedulingError if the process may run on none of them.
    """
    if not cores:
        return
    allowed = os.sched_getaffinity(0) & cores
    if not allowed:
        raise SchedulingError("--cpu-mask, --cpu-range: this process may run on none of the cores")
    os.sched_setaffinity(0, allowed)


def use_priority(priority: int) -> None:
    """-1 low to 3 real time. Raises: SchedulingError where the right for it is missing."""
    if priority == 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS[priority])
    except OSError as error:
        raise SchedulingError(f"--prio {priority}: {error.strerror}") from None
