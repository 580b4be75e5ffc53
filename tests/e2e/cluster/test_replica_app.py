"""The application as a replica has it, under a plain uvicorn: no Ray is needed for that."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.support.faults.frozen_thread import CannotFreeze, frozen, thread_of
from tests.support.patience import patience
from unpaced.cluster.replica_app import read_flags
from unpaced.settings import SettingsError

PROGRAM = """
import asyncio, sys, threading, time, uvicorn
from unpaced.cluster.replica_app import ReplicaApp, read_flags
async def serve():
    app = ReplicaApp(read_flags(sys.argv[1], 1))
    server = uvicorn.Server(uvicorn.Config(app, port=int(sys.argv[2]), lifespan="on"))
    running = asyncio.create_task(server.serve())
    while not running.done():
        await asyncio.wait([running], timeout=1)
        if server.started and app.why_ill():
            print("ill:", app.why_ill(), flush=True)
    if not server.started:
        sys.exit(3)
asyncio.run(serve())
"""


@contextlib.contextmanager
def replica(flags: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, flags, str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()


def first_answer(process: subprocess.Popen[bytes], client: httpx.Client) -> httpx.Response:
    """The first answer that anybody gets."""
    deadline = time.monotonic() + patience(30)
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.ConnectError):
            return client.post("/completion", json={"prompt": "Once", "n_predict": 4})
        time.sleep(0.02)
    raise TimeoutError


def test_it_takes_requests_when_it_can_answer_them(tmp_path: Path) -> None:
    with replica("-c 512", tmp_path / "log") as (process, client):
        assert first_answer(process, client).status_code == 200


def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    model = tmp_path / "no.gguf"
    model.write_bytes(b"GGUF" + bytes(64))
    with replica(f"-m {model}", tmp_path / "log") as (process, _):
        assert process.wait(patience(30)) == 3


def test_a_decode_thread_that_hangs_is_told_to_its_clients(tmp_path: Path) -> None:
    flags = "-c 512 --context-shift --stall-timeout 2"
    with replica(flags, tmp_path / "log") as (process, client):
        assert first_answer(process, client).status_code == 200
        body = {"prompt": "Once", "n_predict": -1, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/completion", json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            try:
                with frozen(thread_of(process.pid, "decode")):
                    last = [line for line in lines if line][-1]
                    assert "the engine failed" in last
                    assert client.post("/completion", json=body).status_code == 503
            except CannotFreeze as error:
                pytest.skip(f"no ptrace here: {error}")
    assert "ill: the decode thread has not moved" in (tmp_path / "log").read_text()


def test_flags_are_the_servers() -> None:
    settings = read_flags("-c 2048 -np 2", 3)
    assert (settings.n_slots, settings.threads, settings.pin) == (2, 3, False)
    assert read_flags("-t 5 --pin", 3).pin
    with pytest.raises(SettingsError):
        read_flags("--dry-run", 1)
    with pytest.raises(SystemExit):
        read_flags("--no-such-flag", 1)
