"""What systemd is told, and the sockets that it hands over, with and without a supervisor."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.test_listening import wait_healthy
from tests.support.faults.frozen_thread import CannotFreeze, frozen, thread_of
from tests.support.server import UNPACED, Server, serving
from tests.support.supervision.notify_listener import NotifyListener
from tests.support.supervision.supervised import child_of, wait_replaced

BOTH = pytest.mark.parametrize("mode", ["--no-supervise", "--supervise"])


@pytest.fixture
def listener(socket_folder: Path) -> Iterator[NotifyListener]:
    manager = NotifyListener(socket_folder / "notify")
    yield manager
    manager.close()


@contextlib.contextmanager
def managed(listener: NotifyListener, *arguments: str) -> Iterator[Server]:
    env = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "10000000"}
    with serving("-np", "1", *arguments, env=env) as server:
        yield server


def n_beats(listener: NotifyListener) -> int:
    return len(listener.values("WATCHDOG"))


@BOTH
def test_a_manager_is_told_of_start_life_and_end(listener: NotifyListener, mode: str) -> None:
    with managed(listener, mode) as server:
        listener.wait(lambda: listener.values("READY") == ["1"])
        assert set(listener.values("MAINPID")) == {str(server.process.pid)}
        listener.wait(lambda: listener.values("STATUS")[-1] == "serves demo.gguf")
        before = n_beats(listener)
        listener.wait(lambda: n_beats(listener) >= before + 2)
        assert listener.values("STOPPING") == []
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(20) == 0
    assert "1" in listener.values("STOPPING")


def test_a_restart_is_told_and_nothing_stops(listener: NotifyListener) -> None:
    with managed(listener, "--supervise") as server:
        child = child_of(server.process.pid)
        os.kill(child, signal.SIGKILL)
        wait_replaced(server, child)
        listener.wait(lambda: listener.values("READY") == ["1", "1"])
        assert set(listener.values("MAINPID")) == {str(server.process.pid)}
        assert "starts again: the last server was killed by SIGKILL" in listener.values("STATUS")
        assert listener.values("STOPPING") == []


@BOTH
def test_the_watchdog_hears_nothing_while_the_decode_thread_hangs(
    listener: NotifyListener, mode: str
) -> None:
    with managed(listener, mode) as server:
        pid = server.process.pid if mode == "--no-supervise" else child_of(server.process.pid)
        listener.wait(lambda: n_beats(listener) > 0)
        with server.open_request("/completion", prompt="a", n_predict=-1, ignore_eos=True):
            server.until(lambda: server.metric("unpaced_requests_running") == 1)
            try:
                with frozen(thread_of(pid, "decode")):
                    hangs = "the decode thread has not moved"
                    listener.wait(lambda: hangs in listener.values("STATUS")[-1])
                    before = n_beats(listener)
                    time.sleep(3)
                    assert n_beats(listener) == before
                listener.wait(lambda: n_beats(listener) > before)
            except CannotFreeze as error:
                pytest.skip(f"no ptrace here: {error}")


def test_a_manager_that_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "none"), "WATCHDOG_USEC": "1000000"}
    with serving("-np", "1", env=env) as server:
        assert server.complete(prompt="a", n_predict=2)["tokens_predicted"] == 2


def test_a_watchdog_for_another_process_is_not_ours(listener: NotifyListener) -> None:
    env = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    with serving("-np", "1", env=env):
        listener.wait(lambda: listener.values("READY") == ["1"])
        time.sleep(1.5)
    assert n_beats(listener) == 0


@contextlib.contextmanager
def activated(*arguments: str, sockets: list[socket.socket]) -> Iterator[subprocess.Popen[str]]:
    """As systemd starts it: the sockets are descriptors from 3 on."""

    def place() -> None:
        for number, listener in enumerate([s.dup() for s in sockets], 3):
            os.dup2(listener.fileno(), number)

    numbers = range(3, 3 + len(sockets))
    process = subprocess.Popen(
        ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", str(UNPACED), "serve", "-t", "1", *arguments],
        env=os.environ | {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": "a:b"},
        pass_fds=tuple(numbers),
        preexec_fn=place,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@BOTH
def test_sockets_of_a_service_manager_are_served(mode: str, socket_folder: Path) -> None:
    path = socket_folder / "activated.socket"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        # Out of the way of the descriptors that are handed over.
        tcp.bind(("127.0.0.1", 0))
        unix.bind(str(path))
        for listener in (tcp, unix):
            listener.listen()
        url = f"http://127.0.0.1:{tcp.getsockname()[1]}"
        with (
            activated(mode, sockets=[tcp, unix]) as process,
            httpx.Client(base_url=url, trust_env=False) as client,
        ):
            wait_healthy(client)
            local = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(base_url="http://x", transport=local) as over_unix:
                wait_healthy(over_unix)
            if mode == "--supervise":
                os.kill(child_of(process.pid), signal.SIGKILL)
                time.sleep(0.1)
                wait_healthy(client)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=20)
        assert process.returncode == 0
        assert f"url='{url}, unix:{path}'" in log
        assert path.exists()  # whoever made it removes it


@BOTH
def test_a_descriptor_that_nobody_can_listen_on_is_named(mode: str) -> None:
    with (
        socket.socket() as idle,
        activated(mode, sockets=[idle]) as process,
    ):
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "descriptor 3 is not a listening stream socket" in log


def test_variables_for_another_process_are_not_ours() -> None:
    with serving("-np", "1", env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as server:
        assert server.client.get("/health").status_code == 200
