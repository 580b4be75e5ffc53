"""A server that dies, hangs or loses its engine is replaced, and no client is refused meanwhile."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.faults.frozen_thread import CannotFreeze, frozen, thread_of
from tests.support.server import UNPACED, Server
from tests.support.supervision.supervised import child_of, read_to_end, supervised, wait_replaced
from unpaced.settings.model import DEMO_MODEL

ENDLESS: dict[str, Any] = {"prompt": "a", "n_predict": -1, "ignore_eos": True, "stream": True}


class Askers:
    """Clients that ask without a pause; `refused` has those that found nobody to ask."""

    def __init__(self, server: Server, n: int = 2) -> None:
        self.statuses: list[int] = []
        self.refused: list[str] = []
        self._server = server
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(n)]

    def __enter__(self) -> "Askers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        url = f"{self._server.url}/completion"
        with httpx.Client(trust_env=False, timeout=60) as client:
            while not self._is_over.wait(0.01):
                try:
                    answer = client.post(url, json={"prompt": "a", "n_predict": 2})
                    self.statuses.append(answer.status_code)
                except httpx.ConnectError as error:
                    self.refused.append(str(error))
                except httpx.TransportError:
                    pass  # it was being served when the server died


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_server_that_dies_under_load_is_replaced(number: signal.Signals) -> None:
    with supervised() as server:
        with Askers(server) as askers:
            for _ in range(2):
                child = child_of(server.process.pid)
                with server.open_request("/completion", **ENDLESS) as stream:
                    assert stream.recv(12) == b"HTTP/1.1 200"
                    os.kill(child, number)
                    read_to_end(stream)  # it does end
                wait_replaced(server, child)
            # They ask on, and the new server answers.
            n = len(askers.statuses)
            server.until(lambda: 200 in askers.statuses[n:], 30)
        assert askers.refused == []
        assert set(askers.statuses) <= {200, 503}
        assert server.metric('unpaced_supervisor_restarts_total{reason="signal"}') == 2
        cause = f'unpaced_supervisor_last_restart_info{{cause="was killed by {number.name}"}}'
        assert server.metric(cause) == 1
        log = server.logged()
    assert log.count(f"the server is replaced cause='was killed by {number.name}'") == 2
    assert log.count("ready again") == 2


def test_a_server_that_stands_still_is_replaced() -> None:
    with supervised("--stall-timeout", "2") as server:
        child = child_of(server.process.pid)
        os.kill(child, signal.SIGSTOP)
        assert wait_replaced(server, child) > 1.5
        assert server.metric('unpaced_supervisor_restarts_total{reason="hang"}') == 1
        log = server.logged()
    assert "the server hangs reason='its event loop has not turned for" in log


def test_no_hang_is_looked_for_where_nobody_wants_it() -> None:
    with supervised("--stall-timeout", "0") as server:
        child = child_of(server.process.pid)
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            wait_replaced(server, child, 5)
        os.kill(child, signal.SIGCONT)
        assert server.complete(prompt="a", n_predict=2)["tokens_predicted"] == 2
        assert child_of(server.process.pid) == child


def test_a_lost_engine_tells_its_clients_and_is_replaced() -> None:
    with supervised("--stall-timeout", "2", "--stop-timeout", "2") as server:
        child = child_of(server.process.pid)
        with server.open_request("/completion", **ENDLESS) as stream:
            assert stream.recv(12) == b"HTTP/1.1 200"
            thread = thread_of(child, "decode")
            try:
                with frozen(thread):
                    text = read_to_end(stream)

                    def is_ended() -> bool:
                        # The tracer learns of its thread's end first.
                        with contextlib.suppress(ChildProcessError):
                            os.waitpid(thread, os.WNOHANG | 0x40000000)
                        return "the server is replaced" in server.log.read_text()

                    server.until(is_ended, 30)
            except CannotFreeze as error:
                pytest.skip(f"no ptrace here: {error}")
        assert b'"error"' in text
        wait_replaced(server, child)
        assert server.metric('unpaced_supervisor_restarts_total{reason="engine_lost"}') == 1
        assert "status 70: the engine was lost" in server.logged()


def test_somebody_answers_while_servers_fail_to_start(tmp_path: Path) -> None:
    model, log = tmp_path / "model.gguf", tmp_path / "log"
    model.write_bytes(DEMO_MODEL.read_bytes())
    with supervised("-m", str(model), "--api-prefix", "", "--log-file", str(log)) as server:
        child = child_of(server.process.pid)
        model.rename(tmp_path / "away")
        os.kill(child, signal.SIGKILL)
        told = []

        def is_told_why() -> bool:  # whom the next start keeps for long hears of the one before it
            answer = server.client.post("/completion", json={"prompt": "a"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            error = answer.json()["error"]
            assert error["type"] == "unavailable_error"
            told.append(error["message"])
            return "ended with status 1" in told[-1]

        server.until(is_told_why, 30)
        assert all("killed by SIGKILL" in message for message in told[:-1])
        assert server.client.get("/health").status_code == 503
        assert server.client.get("/health/live").status_code == 200
        head = server.client.head("/health/ready")
        assert (head.status_code, head.content) == (503, b"")
        big = server.client.post("/completion", content=b"x" * 1_000_000)
        assert big.status_code == 503
        (tmp_path / "away").rename(model)
        wait_replaced(server, child)
        assert server.metric("unpaced_supervisor_refused_requests_total") >= 4
        text = log.read_text()
    # The file has both processes' lines, and those from before the restart.
    assert text.count("supervisor: the server is replaced") >= 2
    assert text.count(" start ") >= 2


def test_it_gives_up_where_no_start_succeeds(tmp_path: Path) -> None:
    """A model that is broken is for somebody to put right: nothing is tried again."""
    model = tmp_path / "model.gguf"
    model.write_bytes(DEMO_MODEL.read_bytes()[:4096])
    for arguments in (["-m", str(model)], ["-m", str(tmp_path / "none.gguf")], ["--no-such-flag"]):
        done = subprocess.run(
            [str(UNPACED), "serve", "--supervise", "--port", "0", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert "the server is replaced" not in done.stderr
        assert "error" in done.stderr


def test_a_server_ends_with_its_supervisor() -> None:
    with supervised() as server:
        server.process.kill()

        def is_free() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED

        server.until(is_free, 20)
