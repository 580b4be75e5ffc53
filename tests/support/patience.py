"""How long a test may wait on a machine where others compute, too."""

import os


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, times how many processes now want each core."""
    n_cores = len(os.sched_getaffinity(0))
    return seconds * max(1.0, os.getloadavg()[0] / n_cores)
