"""Cores, priority and file descriptors of the process, before any thread is made."""

import contextlib
import os
import resource
from collections.abc import Set
from typing import Final

_NICENESS: Final = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}
"""By llama.cpp's number for a priority (llama.cpp 0c1e57098 common/common.cpp:259)."""
_DESCRIPTORS_MIN: Final = 64
"""Libraries, rings, the template process and a handful of clients; 40 are taken at rest."""

_ADDRESS_SPACE_MIN: Final = 256 << 20
"""Libraries, stacks, rings and a small context; with 180 MiB ggml aborts beside the demo model."""


class SchedulingError(Exception):
    """The process may not have these cores, this priority or so few files; the text says why."""


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


def use_address_space(n_model_bytes: int) -> None:
    """Be sure that a limit (ulimit -v) leaves room for a model of this size and what serves it.

    With less, ggml, the C library or a thread that cannot be made would abort the process. With a
    limit, ggml's own aborts come without gdb's view of the stack: gdb inherits the limit, and was
    seen to run for ever while the process waited for it.

    Raises: SchedulingError if there is too little to serve with.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    needed = _ADDRESS_SPACE_MIN + n_model_bytes
    if limit < needed:
        raise SchedulingError(
            f"only {limit >> 20} MiB of address space are allowed (ulimit -v): "
            f"at least {(needed >> 20) + 1} are needed for this model"
        )
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")


def use_descriptors() -> None:
    """Have as many file descriptors as are allowed: each client takes one.

    Raises: SchedulingError if they are too few to serve with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= most < _DESCRIPTORS_MIN:
        raise SchedulingError(
            f"only {most} files may be open at once (ulimit -n): "
            f"at least {_DESCRIPTORS_MIN} are needed"
        )
