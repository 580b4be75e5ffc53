"""Where the server listens: several addresses, a Unix socket, TLS, a shared port."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.support.server import UNPACED


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


def test_several_addresses_and_a_unix_socket_serve_the_same(tmp_path: Path) -> None:
    path, port = tmp_path / "x.sock", free_port()
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


def test_a_unix_socket_in_use_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
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
