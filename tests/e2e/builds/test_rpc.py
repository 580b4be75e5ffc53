"""A build with llama.cpp's RPC: a server whose layers a worker computes.

`make build PROFILE=cpu-rpc` first.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_ext.base.build_info import read_build_info
from tests.bench.rig.server_process import free_port
from tests.support.server import UNPACED, serving
from unpaced.process.engine_watch import ENGINE_LOST

HAS_RPC = read_build_info().profile.endswith("-rpc")
needs_rpc = pytest.mark.skipif(not HAS_RPC, reason="llama.cpp is built without RPC")

GREEDY: dict[str, Any] = {"n_predict": 24, "temperature": 0, "return_tokens": True}
PROMPTS = ("Once upon a time", "The fox", "On a cold morning")


@contextlib.contextmanager
def working(log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A worker that listens, and its address."""
    port = free_port()
    command = [str(UNPACED), "rpc-worker", "--port", str(port), "-t", "1"]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as worker:
        try:
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert worker.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield f"127.0.0.1:{port}", worker
        finally:
            worker.kill()


@needs_rpc
def test_a_worker_computes_the_layers(tmp_path: Path) -> None:
    with working(tmp_path / "log") as (address, _):
        shown = subprocess.run(
            [str(UNPACED), "serve", "--list-devices", "--rpc", address],
            capture_output=True,
            text=True,
            check=True,
        )
        assert address in shown.stdout
        flags = ("-np", "2", "-c", "1024")
        with serving(*flags, "--rpc", address) as server, serving(*flags) as other:
            loop = server.client.get("/props").json()["unpaced"]["decode_loop"]
            assert loop["loop"] == "host"
            memory = loop["memory_bytes"]
            on_worker = next(use for name, use in memory.items() if name.startswith("RPC"))
            assert on_worker["weights"] > 0.9 * sum(use["weights"] for use in memory.values())
            assert on_worker["kv"] > 0
            for prompt in PROMPTS:
                ours, theirs = (
                    each.complete(prompt=prompt, **GREEDY)["tokens"] for each in (server, other)
                )
                # Repacked weights and others add up in another order: up to a near tie.
                assert ours[:8] == theirs[:8], prompt


@needs_rpc
def test_a_lost_worker_is_an_error_and_an_end(tmp_path: Path) -> None:
    with (
        working(tmp_path / "log") as (address, worker),
        serving("-np", "2", "-c", "1024", "--rpc", address) as server,
    ):
        with server.open_request(
            "/completion", prompt="x", n_predict=-1, ignore_eos=True, stream=True
        ) as stream:
            text = stream.recv(65536)
            while b"data: " not in text:
                text += stream.recv(65536)
            worker.kill()
            while data := stream.recv(65536):
                text += data
        assert b'"error"' in text
        assert b"[DONE]" not in text
        assert server.process.wait(30) == ENGINE_LOST
        assert "the engine is lost" in server.log.read_text()


@pytest.mark.parametrize("command", ["serve", "rpc-worker"])
@pytest.mark.skipif(HAS_RPC, reason="this build has RPC")
def test_a_build_without_rpc_says_how_to_get_it(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        flags = ("--rpc", address) if command == "serve" else ("--port", str(free_port()))
        done = subprocess.run(
            [str(UNPACED), command, *flags], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "has no RPC (make build PROFILE=cpu-rpc, or cuda-rpc)" in done.stderr


def test_a_worker_that_is_not_there_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = subprocess.run(
        [str(UNPACED), "serve", "--rpc", address, "--port", str(free_port())],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"the RPC worker {address} cannot be reached" in done.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--host", "localhost"], "--host: an IPv4 address"),
        (["--port", "70000"], "--port: 1 to 65535"),
        (["-t", "0"], "--threads: 1 at least"),
    ],
)
def test_a_workers_flags_are_checked(flags: list[str], text: str) -> None:
    done = subprocess.run(
        [str(UNPACED), "rpc-worker", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert text in done.stderr
