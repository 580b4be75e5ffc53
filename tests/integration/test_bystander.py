"""The bystander of the attack tests sees what it is there to see."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.bystander import Memory, watching
from tests.support.server import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "2") as running:
        yield running


def test_it_sees_a_server_that_stands_still(server: Server) -> None:
    with watching(server.port) as bystander:
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(server.process.pid, signal.SIGCONT)
        time.sleep(0.2)
    report = bystander.report
    assert not report.failures
    assert report.longest_gap_ms > 500
    assert report.longest_health_ms > 500
    assert not report.is_within(gap_ms=500, health_ms=500)


def test_it_says_when_it_is_not_served(server: Server) -> None:
    with watching(server.port) as served:
        time.sleep(0.2)
    assert served.report.is_within(gap_ms=10_000, health_ms=10_000)
    assert served.report.n_pieces > 1
    with watching(server.port, {"Content-Encoding": "gzip"}) as refused:
        time.sleep(0.1)
    assert any("415" in failure for failure in refused.report.failures)


def test_it_sees_what_is_held(server: Server) -> None:
    memory = Memory(server.process.pid)
    with server.open_request("/tokenize", content="a b " * 500_000, with_pieces=True):
        assert server.until(lambda: memory.grown_bytes() > 16 << 20) < 60
    assert memory.settled_bytes(at_most=0, timeout_s=0.3) < 1 << 30
