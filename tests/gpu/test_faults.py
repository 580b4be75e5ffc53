"""A GPU that hangs, breaks or has no memory left: what clients are told and how the process ends.

UNPACED_GPU_PROGRAMS names the build folder that has the libraries of tests/gpu/cpp (CMake option of
the same name).
"""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.rig.server_process import ServerProcess, free_port, running
from tests.gpu.card_code import libraries
from tests.gpu.one_card import one_card
from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import DEMO_MODEL, has_device
from tests.support.server import Server
from unpaced.cli.chat.own_server import short_folder
from unpaced.process.engine_watch import ENGINE_LOST

PROGRAMS = os.environ.get("UNPACED_GPU_PROGRAMS", "")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    pytest.mark.skipif(PROGRAMS == "", reason="UNPACED_GPU_PROGRAMS is not set"),
]

# For all that takes time beside the limits.
MARGIN_S: Final = 20.0
FAULT_MS: Final = 60_000
# Slots of 1024 cells: graphs for the first 512 of each are made at the start.
EIGHT_SLOTS: Final = ("-np", "8", "-c", "8192", "--no-kv-unified")
# Its prompt, 161 tokens, is too long for a graph of prompts: the first launch is the loop's.
LONG: Final[dict[str, Any]] = {
    "prompt": "Once upon a time " * 32,
    "n_predict": 700,
    "ignore_eos": True,
    "seed": 1,
    "cache_prompt": False,
}
SHORT: Final[dict[str, Any]] = {**LONG, "prompt": "Once upon a time"}
GRAPHS: Final = "unpaced_engine_window_graphs"
GRAPH_PROMPTS: Final = "unpaced_engine_prompts_graph_total"
FAILED_REQUESTS: Final = "unpaced_engine_requests_failed_total"
HOST_REQUESTS: Final = 'unpaced_engine_host_requests_total{reason="launch"}'


class FaultyServer(Server):
    """A server whose GPU can be made to fail."""

    faults: socket.socket

    def fault(self, line: str) -> int:
        """See faulty_server.py."""
        self.faults.sendall(line.encode() + b"\n")
        return int(self.faults.recv(100))

    def end(self, limit_s: float) -> tuple[int, float]:
        """Exit status, and the seconds until then. Raises: TimeoutError."""
        started = time.monotonic()
        while time.monotonic() - started < limit_s:
            pid, status = os.waitpid(self.process.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), time.monotonic() - started
            time.sleep(0.01)
        raise TimeoutError(self.log.read_text()[-3000:])


def faulty_command(port: int, *arguments: str, model: Path = DEMO_MODEL) -> list[str]:
    command = [sys.executable, "-m", "tests.gpu.faulty_server", "serve", "--port", str(port)]
    return [*command, "-m", str(model), "-t", "1", *arguments]


def fault_environment(path: Path) -> dict[str, str]:
    """`path`: of the socket that takes faults."""
    return one_card() | {
        "LD_PRELOAD": str(Path(PROGRAMS).resolve() / "libcall_faults.so"),
        "UNPACED_GPU_PROGRAMS": str(Path(PROGRAMS).resolve()),
        "UNPACED_FAULTS": str(path),
    }


@contextlib.contextmanager
def faulty_server(*arguments: str) -> Iterator[FaultyServer]:
    port = free_port()
    with tempfile.TemporaryDirectory(dir=short_folder()) as scratch:
        log, path = Path(scratch) / "log", str(Path(scratch) / "faults")
        command, env = faulty_command(port, *arguments), fault_environment(Path(path))
        with running(command, env, port, log) as process:
            server = FaultyServer(process, log)
            with socket.socket(socket.AF_UNIX) as server.faults:
                server.faults.connect(path)
                try:
                    yield server
                finally:
                    server.client.close()


def read(connection: socket.socket, *, until: bytes = b"\0") -> bytes:
    """What comes until then, or until the end."""
    text = b""
    while until not in text and (data := connection.recv(65536)):
        text += data
    return text


def open_stream(server: Server) -> socket.socket:
    stream = server.open_request(
        "/completion", prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True
    )
    read(stream, until=b"data: ")
    return stream


def needs_the_usual_patience(server: Server) -> None:
    """A decode thread may stand ten times as long where the driver compiles kernels as it goes."""
    compiled_from = server.client.get("/props").json()["unpaced"]["decode_loop"]["compiled_from"]
    if compiled_from:
        pytest.skip(f"the driver compiles PTX of {compiled_from}, for longer than the limit")


def stall_s(limit_s: float) -> float:
    """What `limit_s` of --stall-timeout is in a start, before which no server can be asked."""
    compiles = any(not code.binary for code in libraries().values())
    return 10 * limit_s if compiles else limit_s


def hang_ms() -> int:
    """Longer than such a start may take, so that the end of the hang ends no wait."""
    return FAULT_MS + int(1000 * (stall_s(3) - 3))


def check_end(server: FaultyServer, text: bytes, limit_s: float) -> None:
    assert b'"error"' in text
    assert b"the engine failed after" in text
    assert b"[DONE]" not in text
    status, seconds = server.end(limit_s + MARGIN_S)
    print(f"ended with {status} after {seconds:.1f} s")
    assert status == ENGINE_LOST
    assert "the engine is lost" in server.log.read_text()


@pytest.mark.parametrize(
    ("loop", "kernels"),
    [("host", "ggml"), ("ahead", "ggml"), ("device", "ggml"), ("ahead", "own"), ("device", "own")],
)
def test_a_gpu_that_hangs_while_it_decodes(loop: str, kernels: str) -> None:
    arguments = ("--context-shift", "--decode-loop", loop, "--kernels", kernels)
    with (
        faulty_server(
            "-np", "1", "--stall-timeout", "3", "--stop-timeout", "2", *arguments
        ) as server,
        open_stream(server) as stream,
    ):
        needs_the_usual_patience(server)
        started = time.monotonic()
        assert server.fault(f"occupy {FAULT_MS}") == 0
        text = read(stream)
        print(f"told after {time.monotonic() - started:.1f} s")
        check_end(server, text, 3 + 2)


def test_a_gpu_that_hangs_in_the_self_test(tmp_path: Path, socket_folder: Path) -> None:
    port = free_port()
    limits = ("-np", "1", "--stall-timeout", "3", "--stop-timeout", "2")
    env = fault_environment(socket_folder / "faults")
    env["UNPACED_OCCUPY_AT_LAUNCH"] = str(hang_ms())
    log = tmp_path / "log"
    process = ServerProcess(faulty_command(port, *limits), env, port, log)
    try:
        assert process.wait(30 + stall_s(3) + 2 + MARGIN_S) == ENGINE_LOST
    finally:
        process.stop()
    assert "--decode-loop host does without" in log.read_text()


# In the comparison of bits, and in a graph that is timed.
@pytest.mark.parametrize(("kernels", "number"), [("own", 1), ("own", 5), ("auto", 60)])
def test_a_kernel_of_ours_that_hangs_in_its_test(
    kernels: str, number: int, tmp_path: Path, socket_folder: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    port = free_port()
    limits = ("-np", "1", "--stall-timeout", "3", "--stop-timeout", "2", "--kernels", kernels)
    env = fault_environment(socket_folder / "faults")
    env |= {"UNPACED_HANG_AT_KERNEL": str(number), "UNPACED_HANG_MS": str(hang_ms())}
    env["XDG_CACHE_HOME"] = str(tmp_path)  # auto measures anew
    log = tmp_path / "log"
    process = ServerProcess(faulty_command(port, *limits, model=model), env, port, log)
    try:
        assert process.wait(30 + stall_s(3) + 2 + MARGIN_S) == ENGINE_LOST
    finally:
        process.stop()
    assert "the GPU has given no sign of life" in log.read_text()
    assert "--decode-loop host does without" in log.read_text()


def test_a_gpu_that_hangs_before_a_prompt() -> None:
    with faulty_server("-np", "1", "--stall-timeout", "3", "--stop-timeout", "2") as server:
        needs_the_usual_patience(server)
        assert server.fault(f"occupy {FAULT_MS}") == 0
        with server.open_request("/completion", prompt="Hello", n_predict=4) as answer:
            text = read(answer)
        assert text.startswith(b"HTTP/1.1 500")
        check_end(server, text, 3 + 2)


def test_sigterm_does_not_wait_for_a_hung_gpu() -> None:
    limits = ("--stall-timeout", "0", "--drain-timeout", "1", "--stop-timeout", "1")
    with (
        faulty_server("-np", "1", "--context-shift", *limits) as server,
        open_stream(server) as stream,
    ):
        assert server.fault(f"occupy {FAULT_MS}") == 0
        os.kill(server.process.pid, signal.SIGTERM)
        assert b"the server is stopping" in read(stream)
        status, seconds = server.end(1 + 1 + MARGIN_S)
        print(f"ended with {status} after {seconds:.1f} s")
        assert status == ENGINE_LOST


def test_a_gpu_that_is_slow_for_a_while_goes_on() -> None:
    with faulty_server("-np", "1", "--stall-timeout", "30") as server:
        expected = server.complete(**LONG)["content"]
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(server.complete, **LONG)
            server.until(lambda: server.metric("unpaced_engine_slots_active") > 0)
            assert server.fault("occupy 5000") == 0
            assert answer.result()["content"] == expected
        assert server.complete(**LONG)["content"] == expected
        assert "lost" not in server.log.read_text()


@pytest.mark.parametrize("loop", ["ahead", "device"])
def test_a_context_that_breaks_while_it_decodes(loop: str) -> None:
    with (
        faulty_server("-np", "1", "--context-shift", "--decode-loop", loop) as server,
        open_stream(server) as stream,
    ):
        started = time.monotonic()
        assert server.fault("break") != 0
        text = read(stream)
        print(f"told after {time.monotonic() - started:.1f} s")
        check_end(server, text, 5)


def test_a_context_that_breaks_while_nobody_asks() -> None:
    with faulty_server("-np", "1") as server:
        assert server.fault("break") != 0
        with server.open_request("/completion", prompt="Hello", n_predict=4) as answer:
            text = read(answer)
        assert text.startswith(b"HTTP/1.1 500")
        check_end(server, text, 5)


@pytest.mark.parametrize("loop", ["ahead", "device"])
@pytest.mark.parametrize("call", ["cudaGraphInstantiate", "ggml_backend_sched_alloc_graph"])
def test_a_graph_that_cannot_be_made_is_done_without(loop: str, call: str) -> None:
    with faulty_server(*EIGHT_SLOTS, "--decode-loop", loop) as server:
        expected = server.complete(**LONG, id_slot=0)["content"]
        assert server.metric(HOST_REQUESTS) == 0
        assert server.fault(f"refuse {call} 1000000") == 0
        assert server.complete(**LONG, id_slot=1)["content"] == expected
        assert server.metric(HOST_REQUESTS) == 1
        assert server.fault(f"refuse {call} 0") == 0
        assert server.complete(**LONG, id_slot=1)["content"] == expected
        assert server.metric(HOST_REQUESTS) == 1


@pytest.mark.parametrize("loop", ["ahead", "device"])
def test_graphs_whose_memory_has_moved_are_made_again(loop: str) -> None:
    with faulty_server(*EIGHT_SLOTS, "--decode-loop", loop) as server:
        expected = server.complete(**LONG, id_slot=0)["content"]
        n_graphs = server.metric(GRAPHS)
        assert server.fault("move_buffer") == 0
        assert server.complete(**LONG, id_slot=1)["content"] == expected
        # The eight slots' first ones have gone.
        assert server.metric(GRAPHS) < n_graphs - 8
        for slot in (0, 1):
            assert server.complete(**LONG, id_slot=slot)["content"] == expected
        assert server.metric(HOST_REQUESTS) == 0
        assert server.metric(FAILED_REQUESTS) == 0


@pytest.mark.parametrize("loop", ["ahead", "device"])
def test_a_cell_that_is_taken_meanwhile_fails_the_request_alone(loop: str) -> None:
    with faulty_server("-np", "1", "--decode-loop", loop) as server:
        expected = server.complete(**LONG)["content"]
        assert server.fault("take_cell") == 0
        answer = server.post("/completion", LONG)
        assert answer.status_code == 500
        print(answer.text)
        assert server.metric(FAILED_REQUESTS) == 1
        assert server.complete(**LONG)["content"] == expected
        assert server.metric(FAILED_REQUESTS) == 1
        assert "lost" not in server.log.read_text()
        assert server.metric(GRAPH_PROMPTS) == 0


@pytest.mark.parametrize("loop", ["ahead", "device"])
@pytest.mark.parametrize("n_refused", [1, 3, 1000])
def test_a_launch_that_fails_is_made_up_for(loop: str, n_refused: int) -> None:
    with faulty_server("-np", "1", "--decode-loop", loop) as server:
        expected = server.complete(**LONG)["content"]
        assert server.fault(f"refuse cudaGraphLaunch {n_refused}") == 0
        assert server.complete(**LONG)["content"] == expected
        assert server.metric(FAILED_REQUESTS) == 0
        assert server.fault("refuse cudaGraphLaunch 0") == 0
        assert server.complete(**LONG)["content"] == expected
        assert server.metric(GRAPH_PROMPTS) == 0


def test_a_prompt_whose_launch_fails_is_computed_by_llama_decode() -> None:
    with faulty_server("-np", "1") as server:
        expected = server.complete(**SHORT)["content"]
        # The first prompt of its length says which graph it lacks.
        server.until(
            lambda: (
                server.complete(**SHORT)["content"] == expected and server.metric(GRAPH_PROMPTS) > 0
            )
        )
        n_graph = server.metric(GRAPH_PROMPTS)
        assert server.fault("refuse cudaGraphLaunch 1") == 0
        assert server.complete(**SHORT)["content"] == expected
        assert server.metric(GRAPH_PROMPTS) == n_graph
        assert server.complete(**SHORT)["content"] == expected
        assert server.metric(GRAPH_PROMPTS) == n_graph + 1
        assert server.metric(HOST_REQUESTS) == server.metric(FAILED_REQUESTS) == 0


def test_a_prompt_whose_cell_is_taken_meanwhile_is_computed_by_llama_decode() -> None:
    with faulty_server("-np", "1") as server:
        expected = server.complete(**SHORT)["content"]
        n_graph = server.metric(GRAPH_PROMPTS)
        assert server.fault("take_cell") == 0
        assert server.complete(**SHORT)["content"] == expected
        assert server.metric(GRAPH_PROMPTS) == n_graph
        assert server.complete(**SHORT)["content"] == expected
        assert server.metric(FAILED_REQUESTS) == 0
