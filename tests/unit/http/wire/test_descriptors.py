"""A crowd of connections finds room in the table of open files, which is slow to grow later."""

import os
import re
import resource
from pathlib import Path

from unpaced.http.wire.descriptors import reserve_descriptors


def n_reserved() -> int:
    """For how many files the kernel has room without growing this process's table."""
    found = re.search(r"FDSize:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def n_allowed(wanted: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if limit == resource.RLIM_INFINITY else min(wanted, limit)


def test_room_is_made_and_nothing_stays_open() -> None:
    wanted = n_allowed(n_reserved() + 1)
    before = os.listdir("/proc/self/fd")
    reserve_descriptors(wanted)
    assert n_reserved() >= wanted
    assert os.listdir("/proc/self/fd") == before


def test_few_files_are_all_reserved() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(n_reserved(), soft), hard))
    try:
        reserve_descriptors(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir("/proc/self/fd") == before
