"""A server's table of open files has room for a crowd from the start."""

import re
import resource
from pathlib import Path

from tests.support.server import serving
from unpaced.http.wire.descriptors import N_DESCRIPTORS


def test_a_server_has_room_for_a_crowd_of_connections() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = N_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(N_DESCRIPTORS, limit)
    with serving("-c", "64") as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        found = re.search(r"FDSize:\s+(\d+)", status)
    assert found is not None
    assert int(found[1]) >= wanted
