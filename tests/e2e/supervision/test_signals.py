"""Signals to a supervisor mean what they mean to a server, and so do exit statuses."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_http import read_all
from tests.support.server import UNPACED
from tests.support.supervision.child_processes import child_processes
from tests.support.supervision.supervised import child_of, supervised

STREAM: dict[str, Any] = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_these_let_a_stream_end(number: signal.Signals) -> None:
    with supervised() as server:
        with server.open_request("/completion", **STREAM) as stream:
            assert stream.recv(12) == b"HTTP/1.1 200"
            os.kill(server.process.pid, number)
            assert b'"stop":true' in read_all(stream)
        assert server.process.wait(20) == 0
        assert "the server is replaced" not in server.log.read_text()


def test_one_for_all_processes_of_a_service_is_no_second_one() -> None:
    """As systemd sends it by default."""
    with supervised() as server:
        with server.open_request("/completion", **STREAM) as stream:
            assert stream.recv(12) == b"HTTP/1.1 200"
            for pid in (child_of(server.process.pid), server.process.pid):
                os.kill(pid, signal.SIGTERM)
            assert b'"stop":true' in read_all(stream)
        assert server.process.wait(20) == 0


def test_the_second_one_ends_both_at_once() -> None:
    with supervised() as server:
        child = child_of(server.process.pid)
        with server.open_request("/completion", **STREAM | {"n_predict": -1}) as stream:
            assert stream.recv(12) == b"HTTP/1.1 200"
            os.kill(server.process.pid, signal.SIGTERM)
            server.until(lambda: "stopping" in server.log.read_text())
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.process.wait(10) == 128 + signal.SIGTERM
        assert not Path(f"/proc/{child}").exists()


def test_others_are_handed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervised("--log-file", str(log)) as server:
        child = child_of(server.process.pid)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            os.kill(server.process.pid, number)
        server.until(lambda: "opened again" in log.read_text())
        assert server.complete(prompt="a", n_predict=2)["tokens_predicted"] == 2
        assert child_of(server.process.pid) == child


def test_a_stop_while_nothing_runs_ends_with_0(tmp_path: Path) -> None:
    """Between two servers, and before the first one has begun to serve."""
    with supervised() as server:
        os.kill(child_of(server.process.pid), signal.SIGKILL)
        server.until(lambda: "the server is replaced" in server.log.read_text())
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(10) == 0
    with subprocess.Popen(
        [str(UNPACED), "serve", "--supervise", "--port", "0"], stderr=subprocess.PIPE
    ) as process:
        while not child_processes(process.pid):
            time.sleep(0.005)
        process.terminate()
        assert process.wait(20) == 0


def test_a_terminals_pause_stops_both_until_both_go_on() -> None:
    with supervised() as server:
        child = child_of(server.process.pid)

        def states() -> list[str]:
            stats = (Path(f"/proc/{pid}/stat") for pid in (server.process.pid, child))
            return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]

        os.kill(server.process.pid, signal.SIGTSTP)
        server.until(lambda: states() == ["T", "T"], 10)
        os.kill(server.process.pid, signal.SIGCONT)
        server.until(lambda: "T" not in states(), 10)
        assert server.complete(prompt="a", n_predict=2)["tokens_predicted"] == 2


def test_a_hung_server_writes_where_its_threads_are() -> None:
    """What the supervisor asks of a server before it kills it."""
    with supervised() as server:
        os.kill(child_of(server.process.pid), signal.SIGRTMIN + 3)
        server.until(lambda: "most recent call first" in server.log.read_text(), 10)
        assert server.complete(prompt="a", n_predict=2)["tokens_predicted"] == 2


def test_print_config_and_dry_run_say_what_they_would_without() -> None:
    def said(*arguments: str) -> str:
        command = [str(UNPACED), "serve", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "\nsupervise = true\n" in said("--supervise", "--print-config")
    assert "\n# supervise = false\n" in said("--print-config")
    assert said("--supervise", "--dry-run") == said("--dry-run")
    assert "--supervise, --no-supervise" in said("--help") or "--no-supervise" in said("--help")
