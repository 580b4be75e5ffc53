"""What each signal does to a server, and a server whose descriptors are closed or few."""

import contextlib
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.e2e.test_listening import wait_healthy
from tests.support.raw_http import connect, read_all
from tests.support.server import UNPACED, Server, serving
from unpaced.settings.model import DEMO_MODEL

STREAM: dict[str, Any] = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_these_let_a_stream_end(number: signal.Signals) -> None:
    with serving("-t", "1", "-np", "1") as server:
        with server.open_request("/completion", **STREAM) as stream:
            assert stream.recv(12) == b"HTTP/1.1 200"
            os.kill(server.process.pid, number)
            assert b'"stop":true' in read_all(stream)
        assert server.process.wait(20) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serving("-t", "1", "-np", "1", "--log-file", str(log)) as running:
        running.log = log
        yield running


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE])
def test_these_do_nothing(server: Server, number: signal.Signals) -> None:
    for _ in range(3):
        os.kill(server.process.pid, number)
    time.sleep(0.1)
    assert server.complete(**STREAM | {"stream": False, "n_predict": 3})["tokens_predicted"] == 3


def test_a_hangup_opens_the_log_file_again(server: Server) -> None:
    server.client.post("/before")
    moved = server.log.with_suffix(".1")
    server.until(lambda: "/before" in server.log.read_text())
    server.log.rename(moved)
    os.kill(server.process.pid, signal.SIGHUP)
    server.until(lambda: server.log.exists() and "opened again" in server.log.read_text())
    server.client.post("/after")
    server.until(lambda: "/after" in server.log.read_text())
    assert "/after" not in moved.read_text()


def test_a_terminal_that_is_gone_drains() -> None:
    port = free_port()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(UNPACED), "--port", str(port)], stdin=theirs, stderr=theirs, start_new_session=True
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
        os.close(theirs)
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_terminal_that_stands_still_does_not_stop_the_start() -> None:
    port = free_port()
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    for _ in range(20):  # the system moves some of it on, and there is room again
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(theirs, b"x")
        time.sleep(0.01)
    os.set_blocking(theirs, True)
    process = subprocess.Popen(
        [str(UNPACED), "--port", str(port), "-t", "1"],
        stdin=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


@pytest.mark.parametrize("closed", [(0, 1, 2), (2,), (1,)])
def test_closed_standard_streams(closed: tuple[int, ...]) -> None:
    port = free_port()
    shell = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    process = subprocess.Popen(
        f"exec {UNPACED} --port {port} -t 1 {shell}",
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
            for number in closed:
                target = os.readlink(f"/proc/{process.pid}/fd/{number}")
                assert target == "/dev/null"
            body = STREAM | {"stream": False, "n_predict": 3}
            assert client.post("/completion", json=body).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in out + err


def limited(limit: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = f"ulimit {limit}; exec {UNPACED} --port 0 {' '.join(flags)}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "limit", ["-n 16", "-n 40", "-v 60000", "-v 90000", "-v 100000", "-v 130000", "-v 160000"]
)
def test_limits_too_low_to_start_are_one_sentence(limit: str) -> None:
    done = limited(limit)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "error: " in last
    assert ("files may be open" if limit.startswith("-n") else "MiB of address space") in last


def test_an_address_space_that_is_enough_serves() -> None:
    command = f"ulimit -v 1000000; exec {UNPACED} --port {(port := free_port())} -t 1 -np 1"
    process = subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
            assert client.post("/completion", json={"prompt": "a", "n_predict": 2}).is_success
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_few_descriptors_refuse_clients_and_recover() -> None:
    port = free_port()
    command = f"ulimit -n 80; exec {UNPACED} --port {port} -t 1 -np 1"
    process = subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
        held = [connect(port) for _ in range(100)]
        time.sleep(0.5)
        for connection in held:
            connection.close()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in err
    assert len(err.splitlines()) < 100


@pytest.mark.parametrize(
    ("flags", "n_bytes"),
    [
        pytest.param("-t 1 --no-repack", 4096, id="one thread finds out"),
        pytest.param("-t 2", 1_000_000, id="two threads find out at once"),
    ],
)
def test_a_model_file_that_becomes_shorter_gets_a_sentence(
    tmp_path: Path, flags: str, n_bytes: int
) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(DEMO_MODEL.read_bytes())
    with serving("-m", str(model), "-np", "1", "--mmap", *flags.split()) as server:
        os.truncate(model, n_bytes)
        with server.open_request("/completion", **STREAM) as stream:
            read_all(stream)
        server.process.wait(20)
        log = server.log.read_text()
    assert "the model file was shortened" in log
    assert "SIGBUS" in log
