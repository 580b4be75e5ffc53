"""What the log flags do to a real server's output."""

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.bench.rig.server_process import free_port
from tests.e2e.test_listening import wait_healthy
from tests.support.server import UNPACED, serving


def run_once(*flags: str) -> tuple[str, str]:
    """Standard output and standard error of a server that answered one request."""
    port = free_port()
    process = subprocess.Popen(
        [str(UNPACED), "--port", str(port), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_healthy(client)
            assert client.post("/tokenize", json={"content": "secret"}).status_code == 200
            assert client.post("/no%0Asuch%00path").status_code == 404
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    return out or "", err


def test_json_lines_go_to_standard_output_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("old")
    out, err = run_once("--log-jsonl", "--log-file", str(file), "--no-log-timestamps")
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"start", "ready", "request", "stopping"} <= {line["event"] for line in lines}
    assert all("timestamp" not in line for line in lines)
    assert file.read_text() == out
    assert err == ""


def test_plain_lines_without_prefix_and_time() -> None:
    _, err = run_once("--no-log-prefix", "--no-log-timestamps", "--log-colors", "off")
    assert err.startswith("start ")
    assert "secret" not in err
    assert "path=/no%0Asuch%00path" in err


def test_colours_where_they_are_asked_for() -> None:
    _, err = run_once("--log-colors", "on")
    assert "\x1b[" in err


@pytest.mark.parametrize("n_threads", ["1", "2"])  # of two cores one may be left for an early load
def test_verbose_shows_what_llama_cpp_says(n_threads: str) -> None:
    assert "llama_model_loader" in run_once("-v", "-t", n_threads)[1]


def test_silence() -> None:
    assert run_once("--log-disable") == ("", "")


def test_a_log_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(UNPACED), "--port", "0", "--log-file", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "--log-file: cannot write" in done.stderr


def _fill_the_cells(*flags: str) -> str:
    """The log of a server where prompts had to make room for one another."""
    with serving(*flags) as server, ThreadPoolExecutor() as clients:
        n = server.client.get("/slots").json()[0]["n_ctx"] // 2

        def ask(i: int) -> int:
            prompt = [20 + (7 * j + i) % 200 for j in range(n)]
            body = {"prompt": prompt, "n_predict": 20, "ignore_eos": True}
            return server.client.post("/completion", json=body).status_code

        assert set(clients.map(ask, range(8))) == {200}
        return server.logged()


def test_room_that_others_make_is_no_warning() -> None:
    assert "memory slot" not in _fill_the_cells()


def test_a_debug_log_has_what_llama_cpp_warned_of() -> None:
    assert "failed to find a memory slot" in _fill_the_cells("-v")
