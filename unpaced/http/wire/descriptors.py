"""The table of open files, made large enough while the process has one thread.

Linux doubles it when it is full, and where there are threads each doubling waits for all
processors: 12 ms. A crowd of connections, of which each is a file, waited for four of them, 50 ms
in which nobody was served.
"""

import contextlib
import fcntl
import os
import resource
from typing import Final

N_DESCRIPTORS: Final = 4096
"""Three full queues of those that wait (`count_places`), and a thousand that are served."""


def reserve_descriptors(n: int = N_DESCRIPTORS) -> None:
    """Make room for so many, or for as many as the process may have; nothing stays open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    highest = (n if limit == resource.RLIM_INFINITY else min(n, limit)) - 1
    reading, writing = os.pipe()
    try:
        with contextlib.suppress(OSError):  # all that it may have are in use
            os.close(fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, highest))
    finally:
        os.close(reading)
        os.close(writing)
