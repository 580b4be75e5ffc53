"""A log that nobody reads holds up nobody: its lines wait, then are dropped and counted."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.e2e.test_listening import wait_healthy
from tests.support.bystander import watching
from tests.support.server import UNPACED

N_REQUESTS = 1000
PATH = "/nowhere/" + "x" * 400


@contextmanager
def unread(*flags: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """A server whose standard output and error are pipes that nobody reads."""
    port = free_port()
    process = subprocess.Popen(
        [str(UNPACED), "--port", str(port), "-t", "1", "-np", "2", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
            yield client, process
    finally:
        process.kill()
        process.communicate()


def dropped(client: httpx.Client) -> float:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("unpaced_log_lines_dropped_total "):
            return float(line.split()[1])
    raise KeyError


@pytest.mark.parametrize(
    "flags", [(), ("--log-jsonl",), ("-v",)], ids=["standard error", "standard output", "verbose"]
)
def test_a_full_pipe_holds_up_nobody(flags: tuple[str, ...]) -> None:
    with unread("--log-queue-bytes", "20000", *flags) as (client, process):
        assert dropped(client) == 0 or "-v" in flags
        port = client.base_url.port
        assert port is not None
        with watching(port) as bystander:
            for _ in range(N_REQUESTS):
                assert client.post(PATH).status_code == 404
        assert bystander.report.is_within(gap_ms=2000, health_ms=2000), bystander.report
        assert dropped(client) > N_REQUESTS / 2
        stream = process.stdout if "--log-jsonl" in flags else process.stderr
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        text, deadline = b"", time.monotonic() + 20
        while b"dropped" not in text and time.monotonic() < deadline:
            text += stream.read() or b""
            client.post(PATH)
        assert b"log lines were dropped" in text
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0


def test_a_full_pipe_does_not_keep_the_process() -> None:
    with unread("--log-queue-bytes", "20000") as (client, process):
        for _ in range(400):
            client.post(PATH)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_full_pipe_leaves_the_file_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with unread("--log-queue-bytes", "200000", "--log-file", str(log)) as (client, process):
        for _ in range(400):
            client.post(PATH)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert log.read_text().count("status=404") == 400
