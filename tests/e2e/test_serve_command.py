"""`unpaced` as a process: start, errors, signals, limits."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.patience import patience
from tests.support.server import UNPACED, Server, run, serving
from unpaced.settings.model import DEMO_MODEL


def wait_exit(server: Server, timeout_s: float = 10) -> tuple[int, float]:
    """Exit status and the seconds it took."""
    started = time.monotonic()
    while True:
        pid, status = os.waitpid(server.process.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), time.monotonic() - started
        if time.monotonic() - started > timeout_s:
            raise TimeoutError
        time.sleep(0.005)


def test_version_is_quick_and_says_which_build() -> None:
    best = 10.0
    for _ in range(3):  # CPU, which says the same on a busy machine
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("--version")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.returncode == 0
    assert done.stdout.startswith("unpaced ")
    assert "llama.cpp 0c1e57098" in done.stdout
    assert "profile" in done.stdout
    assert best < 0.3


def test_help_is_worth_reading() -> None:
    top, serve = run("--help"), run("serve", "--help")
    assert (top.returncode, serve.returncode) == (0, 0)
    for word in ("serve", "complete", "health", "version"):
        assert word in top.stdout
    for text in ("--ctx-size", "LLAMA_ARG_CTX_SIZE", "Sampling defaults", "examples:"):
        assert text in serve.stdout


def truncated_model(folder: Path) -> Path:
    path = folder / "truncated.gguf"
    path.write_bytes(DEMO_MODEL.read_bytes()[:100_000])
    return path


def garbage_model(folder: Path) -> Path:
    path = folder / "garbage.gguf"
    path.write_bytes(b"not a model" * 100)
    return path


@pytest.mark.parametrize("kind", ["missing", "truncated", "garbage", "folder"])
def test_a_bad_model_is_one_sentence_that_names_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "missing.gguf"
    if kind == "truncated":
        path = truncated_model(tmp_path)
    elif kind == "garbage":
        path = garbage_model(tmp_path)
    elif kind == "folder":
        path = tmp_path
    done = run("serve", "-m", str(path), "--port", "0")
    assert done.returncode == 1
    assert str(path) in done.stderr
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert "Traceback" not in done.stderr


def test_an_occupied_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["--port", "x"], "--port"),
        (["--decode-core", "4000", "--port", "0"], "--decode-core"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
    ],
)
def test_a_bad_flag_is_named(arguments: list[str], text: str) -> None:
    done = run("serve", *arguments)
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_the_log_ends_its_start_with_a_curl_line_that_works() -> None:
    with serving("-t", "1", "-np", "1") as server:
        server.until(lambda: "curl -N " in server.log.read_text())
        line = next(line for line in server.log.read_text().splitlines() if "curl -N " in line)
        assert f"{server.url}/v1/completions" in line
        done = subprocess.run(
            ["sh", "-c", line.replace('"max_tokens": 64', '"max_tokens": 4')],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode == 127:
            pytest.skip("no curl on the PATH")
        assert done.stdout.rstrip().endswith("data: [DONE]")


def test_health_and_complete_commands() -> None:
    with serving("-t", "1", "-np", "1") as server:
        assert run("health", "--url", server.url).returncode == 0
        done = run("health", UNPACED_PORT=str(server.port))
        assert (done.returncode, done.stdout) == (0, "ok\n")
        done = run("complete", "Once upon a time", "-n", "8", "--seed", "1", "--url", server.url)
        expected = server.complete(prompt="Once upon a time", n_predict=8, seed=1)["content"]
        assert (done.returncode, done.stdout) == (0, expected + "\n")
        done = run("complete", "a", "-n", "-7", "--url", server.url)
        assert done.returncode == 1
        assert "max_tokens" in done.stderr
    done = run("health", "--url", server.url)
    assert done.returncode == 1
    assert done.stderr


def test_a_server_with_a_key_can_be_asked_from_the_command_line() -> None:
    with serving("-t", "1", "-np", "1", "--api-key", "k1") as server:
        ask = ("complete", "Once", "-n", "2", "--url", server.url)
        refused = run(*ask)
        assert refused.returncode == 1
        assert "401: Invalid API Key (--api-key)" in refused.stderr
        assert run(*ask, "--api-key", "k1").returncode == 0
        assert run(*ask, UNPACED_API_KEY="k1,k2").returncode == 0
        assert run(*ask, LLAMA_API_KEY="k1").returncode == 0
        assert run(*ask, "--api-key", "wrong", LLAMA_API_KEY="k1").returncode == 1
        assert run("health", "--url", server.url).returncode == 0
        assert run("health", "--url", server.url, "--api-key", "k1").returncode == 0
        server.until(lambda: "curl -N " in server.log.read_text())
        assert "Authorization: Bearer YOUR-API-KEY" in server.log.read_text()
        assert "k1" not in server.log.read_text()


def test_what_is_no_unpaced_server_is_said_so() -> None:
    class Gateway(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"<html>Bad Gateway</html>")

        def log_message(self, *_: object) -> None:
            pass

    gateway = HTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    try:
        done = run("complete", "a", "--url", f"http://127.0.0.1:{gateway.server_port}")
    finally:
        gateway.shutdown()
        gateway.server_close()
    assert done.returncode == 1
    assert "502: not an unpaced server?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("action", [(), ("--dry-run",)])
def test_a_bad_model_is_one_sentence(action: tuple[str, ...], tmp_path: Path) -> None:
    whole = DEMO_MODEL.read_bytes()
    files = {
        "cut.gguf": (whole[:100_000], "is not within the file bounds"),
        "head.gguf": (whole[:8], "failed to read"),
        "other.gguf": (whole.replace(b"llama", b"llamo", 1), "unknown model architecture"),
        "text.gguf": (b"hello", "is not a GGUF file"),
    }
    for name, (content, reason) in files.items():
        file = tmp_path / name
        file.write_bytes(content)
        done = run("serve", "-m", str(file), "--port", "0", *action)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert re.fullmatch(rf"unpaced serve: error: cannot (load|read) model {file}: [^;]+", last)
        assert reason in last
        assert "llama_" not in last
        assert "gguf_" not in last


def test_a_mistyped_command_suggests_one() -> None:
    done = run("srve")
    assert done.returncode == 1
    assert "unknown command 'srve'; did you mean serve?" in done.stderr


def test_an_idle_server_exits_at_once() -> None:
    with serving("-t", "1", "-np", "1", is_child=True) as server:
        server.client.get("/health")  # its connection stays open
        os.kill(server.process.pid, signal.SIGTERM)
        status, seconds = wait_exit(server)
        log = server.log.read_text()
    assert status == 0
    assert seconds < patience(5)  # docs/bench/startup.md has the time of a quiet machine
    assert "Traceback" not in log
    assert "leaked" not in log


def test_running_streams_end_before_the_process_does() -> None:
    with serving("-t", "1", "-np", "4", is_child=True) as server:
        results: list[bytes] = []

        def read() -> None:
            frames = server.raw_stream(
                "/v1/completions", prompt="Once", max_tokens=100, ignore_eos=True, n=16
            )
            results.append(frames[-1])

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        states = [f"unpaced_requests_{state}" for state in ("running", "waiting")]
        # More than seven of them are: the eighth has come, too.
        server.until(lambda: sum(map(server.metric, states)) > 7 * 16)
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.until(lambda: server.client.get("/health/ready").status_code == 503) < 10
        refused = server.post("/completion", {"prompt": "a"})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        for thread in threads:
            thread.join(60)
        assert results == [b"[DONE]"] * 8
        assert wait_exit(server)[0] == 0


def test_a_stream_that_outlives_the_drain_ends_with_an_error() -> None:
    body = {"prompt": "Once", "ignore_eos": True, "stream": True, "n": 64}
    with (
        serving("-t", "1", "-np", "1", "--drain-timeout", "0.2", is_child=True) as server,
        server.open_request("/v1/completions", **body) as stream,
    ):
        data = stream.recv(65536)
        assert data.startswith(b"HTTP/1.1 200")
        os.kill(server.process.pid, signal.SIGTERM)
        while chunk := stream.recv(65536):
            data += chunk
        assert b'"error"' in data
        assert b"[DONE]" not in data
        assert wait_exit(server)[0] == 0


def test_a_second_signal_ends_the_process_at_once() -> None:
    body = {"prompt": "Once", "ignore_eos": True, "stream": True, "n": 100}
    with (
        serving("-t", "1", "-np", "1", is_child=True) as server,
        server.open_request("/v1/completions", **body) as stream,
    ):
        assert stream.recv(100)
        os.kill(server.process.pid, signal.SIGTERM)
        # Two signals that wait at once are one.
        server.until(lambda: "stopping" in server.log.read_text())
        os.kill(server.process.pid, signal.SIGTERM)
        status, seconds = wait_exit(server)
        assert status == 128 + signal.SIGTERM
        assert seconds < 10  # the drain has 30


def exchange(server: Server, data: bytes, timeout_s: float = 10) -> bytes:
    """What a raw connection gets back until it is closed."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            while chunk := connection.recv(65536):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    return answer


def test_headers_and_bodies_are_limited() -> None:
    with serving(
        "-t", "1", "-np", "1", "--header-timeout", "0.5", "--max-body-bytes", "10000"
    ) as server:
        line = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        started = time.monotonic()
        for head in (
            line + b"X: " + b"a" * (16 * 1024 * 1024) + b"\r\n\r\n",
            line + b"".join(b"X-%d: a\r\n" % i for i in range(20_000)) + b"\r\n",
            b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            assert exchange(server, head).partition(b"\r\n")[0] in (
                b"HTTP/1.1 431 Request Header Fields Too Large",
                b"",  # cut off while it was still sending
            )
        assert time.monotonic() - started < patience(20)
        assert exchange(server, line).startswith(b"HTTP/1.1 408")
        chunk = b"%x\r\n" % 5000 + b"x" * 5000 + b"\r\n"
        head = b"POST /completion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert exchange(server, head + chunk * 10).startswith(b"HTTP/1.1 413")
        head = b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
        assert exchange(server, head).startswith(b"HTTP/1.1 413")
        assert exchange(server, b"\x00garbage\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert server.complete(prompt="a", n_predict=1)["stop"] is True


def test_the_listener_answers_while_the_model_loads() -> None:
    process = subprocess.Popen(
        [str(UNPACED), "serve", "--port", "0", "-t", "1"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "start" in line
        assert "url=http://127.0.0.1:" in line
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in rest


def test_python_dash_m_works() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unpaced", "--version"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.startswith("unpaced ")
