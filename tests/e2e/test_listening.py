"""Where the server listens: addresses, Unix sockets, TLS, a shared port; whom it hears first."""

import contextlib
import os
import select
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.support.raw_http import connect
from tests.support.server import UNPACED, serving

N_CONNECTIONS = 600
KEPT = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
PROBE = KEPT[:-2] + b"Connection: close\r\n\r\n"


@contextlib.contextmanager
def started(*arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A server that is not waited for; killed at the end if it still runs."""
    process = subprocess.Popen(
        [str(UNPACED), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_healthy(client: httpx.Client, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError


def test_several_addresses_and_a_unix_socket_serve_the_same(socket_folder: Path) -> None:
    path, port = socket_folder / "x.sock", free_port()
    with socket.socket(socket.AF_UNIX) as stale:  # as a killed server leaves it
        stale.bind(str(path))
    hosts = f"127.0.0.1, ::1,{path}"
    with started("--host", hosts, "--port", str(port), "--api-prefix", "/llm") as process:
        clients = [
            httpx.Client(base_url=f"http://127.0.0.1:{port}/llm", trust_env=False),
            httpx.Client(base_url=f"http://[::1]:{port}/llm", trust_env=False),
            httpx.Client(
                base_url="http://localhost/llm", transport=httpx.HTTPTransport(uds=str(path))
            ),
        ]
        answers = set()
        for client in clients:
            wait_healthy(client)
            body = {"prompt": "Once", "n_predict": 8, "seed": 1, "stream": True}
            response = client.post("/completion", json=body, timeout=30)
            assert response.status_code == 200
            answers.add(response.text.count("data: "))
            client.close()
        assert len(answers) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert not path.exists()


def test_a_unix_socket_in_use_is_not_taken_over(socket_folder: Path) -> None:
    path = socket_folder / "x.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with started("--host", str(path)) as process:
            _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "a server listens there already" in log
    assert path.exists()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
         certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


def test_tls(tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    port = free_port()
    flags = ("--port", str(port), "--ssl-key-file", str(key), "--ssl-cert-file", str(certificate))
    trust = ssl.create_default_context(cafile=str(certificate))
    with started(*flags) as process:
        with httpx.Client(
            base_url=f"https://127.0.0.1:{port}", verify=trust, trust_env=False
        ) as client:
            wait_healthy(client)
            body = {"prompt": "Once", "max_tokens": 20, "stream": True}
            response = client.post("/v1/completions", json=body, timeout=30)
        assert response.status_code == 200
        assert response.text.endswith("data: [DONE]\n\n")
        health = subprocess.run(
            [str(UNPACED), "health", "--url", f"https://127.0.0.1:{port}"], check=False
        )
        assert health.returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize("broken", ["key", "cert"])
def test_tls_files_that_do_not_work_are_named(tmp_path: Path, broken: str) -> None:
    key, certificate = make_certificate(tmp_path)
    (key if broken == "key" else certificate).write_text("nonsense")
    with started("--ssl-key-file", str(key), "--ssl-cert-file", str(certificate)) as process:
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert str(key) in log and str(certificate) in log


def test_a_shared_port_needs_reuse_port() -> None:
    port = free_port()
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", port))
        with started("--port", str(port)) as process:
            _, log = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "in use" in log
        with (
            started("--port", str(port), "--reuse-port"),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        ):
            wait_healthy(client)


def n_answered(connections: list[socket.socket]) -> int:
    ready = select.poll()
    for connection in connections:
        ready.register(connection, select.POLLIN)
    return len(ready.poll(0))


def read_health(connection: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}") and (piece := connection.recv(4096)):
        answer += piece
    return answer


def test_a_probe_is_answered_before_the_requests_in_front_of_it() -> None:
    endless = {"prompt": "a", "n_predict": -1, "ignore_eos": True}
    with (
        serving("-t", "1", "-np", "1", "--max-queue-requests", "1") as server,
        ExitStack() as held,
        server.open_request("/completion", **endless),
    ):
        server.until(lambda: server.metric("unpaced_requests_running") == 1)
        os.kill(server.process.pid, signal.SIGSTOP)
        flood = []
        for _ in range(N_CONNECTIONS):
            flood.append(held.enter_context(server.open_request("/completion", prompt="b")))
        probe = held.enter_context(connect(server.port))
        probe.sendall(PROBE)
        os.kill(server.process.pid, signal.SIGCONT)
        assert read_health(probe).startswith(b"HTTP/1.1 200 ")
        n_before = n_answered(flood)
        deadline = time.monotonic() + 60
        while n_answered(flood) < N_CONNECTIONS - 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        n_after = n_answered(flood)
    assert n_before < N_CONNECTIONS // 4
    assert n_after >= N_CONNECTIONS - 2  # one waits in the queue, one may have the slot by now


def test_clients_that_connect_at_once_are_all_begun_before_some_are_served_often() -> None:
    n_clients, n_answers = 48, [0] * 48
    with serving("-t", "1", "-np", "1") as server, ExitStack() as held:
        os.kill(server.process.pid, signal.SIGSTOP)
        ready = select.poll()
        clients = {}
        for i in range(n_clients):
            client = held.enter_context(connect(server.port))
            client.sendall(KEPT)
            ready.register(client, select.POLLIN)
            clients[client.fileno()] = (i, client)
        os.kill(server.process.pid, signal.SIGCONT)
        while min(n_answers) == 0:
            for descriptor, _ in ready.poll(10_000):
                i, client = clients[descriptor]
                assert read_health(client).startswith(b"HTTP/1.1 200 ")
                n_answers[i] += 1
                client.sendall(KEPT)
    assert max(n_answers) < 10, n_answers
