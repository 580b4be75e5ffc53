"""llama-swap with the configuration of deploy/: it starts our servers, swaps them and ends them.

Where `llama-swap` is on the PATH, or UNPACED_LLAMA_SWAP names it.
"""

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest

from tests.bench.rig.server_process import ServerProcess, free_port
from tests.e2e.proxies.held_back import RUNNING, is_idle, streams_at_once
from tests.e2e.proxies.proxy import DEPLOY, changed
from tests.support.patience import patience
from tests.support.server import UNPACED, ReachableServer
from tests.support.supervision.child_processes import child_processes

PROGRAM: Final = os.environ.get("UNPACED_LLAMA_SWAP") or shutil.which("llama-swap")
FIRST, SECOND = "qwen3-0.6b", "qwen3-1.7b"
ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "max_tokens": -1}
QUEUED: Final = "unpaced_requests_waiting"
CLEANLY: Final = "process exited cleanly"  # with status 0

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no llama-swap on the PATH (UNPACED_LLAMA_SWAP names it)"
)


@dataclass(frozen=True)
class LlamaSwap:
    """llama-swap as a process, and a client of it."""

    process: ServerProcess
    client: httpx.Client
    log: Path
    at_end: contextlib.ExitStack

    def complete(self, model: str, **body: Any) -> Any:
        """The answer of a completion that must succeed."""
        answer = self.client.post("/completion", json={"model": model, "prompt": "Hello"} | body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def started(self, model: str) -> tuple[ReachableServer, int]:
        """The one server that runs, for this model, after an answer of it; and its process id."""
        assert self.complete(model, n_predict=1)["model"] == model
        (pid,) = self.servers()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert command[command.index(b"--alias") + 1].decode() == model
        server = ReachableServer(int(command[command.index(b"--port") + 1]))
        self.at_end.enter_context(server.client)
        return server, pid

    def servers(self) -> list[int]:
        """Process ids of the servers that it has started and that have not ended."""
        return sorted(child_processes(self.process.pid))

    def ended(self, model: str, n: int) -> list[str]:
        """How this model's servers ended, in llama-swap's words, once it has told it of so many."""
        deadline = time.monotonic() + patience(10)
        while len(told := self._told(model)) < n and time.monotonic() < deadline:
            time.sleep(0.01)
        return told

    def _told(self, model: str) -> list[str]:
        return re.findall(rf"<{re.escape(model)}> (process .*)", self.log.read_text())


@contextlib.contextmanager
def llama_swap(folder: Path, **replacements: str) -> Iterator[LlamaSwap]:
    """llama-swap with the deployed file, but for the models, and with each server's end logged."""
    flags = "-np 1 -c 1024 -t 1 --max-queue-requests 1 --stall-timeout 0 --context-shift"
    # Each token is written as it comes: none waits in the server for the next one.
    flags += " --wake-interval-us 0"
    here = {
        "unpaced: unpaced": f"unpaced: {UNPACED}",
        "-hf Qwen/Qwen3-0.6B-GGUF:Q8_0": flags,
        "-hf Qwen/Qwen3-1.7B-GGUF:Q8_0": flags,
        "startPort: 5800": f"startPort: {free_port()}",
    }
    deployed = changed(DEPLOY / "llama-swap" / "unpaced.yaml", here | replacements)
    (folder / "config.yaml").write_text(f"logLevel: debug\n{deployed}")
    port = free_port()
    command = [str(PROGRAM), "-config", str(folder / "config.yaml")]
    command += ["-listen", f"127.0.0.1:{port}"]
    process = ServerProcess(command, {}, port, folder / "log")
    try:
        process.wait_healthy(30)
        with contextlib.ExitStack() as at_end:
            client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
            yield LlamaSwap(process, at_end.enter_context(client), folder / "log", at_end)
    finally:
        process.stop()


@pytest.fixture(scope="module")
def swap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaSwap]:
    with llama_swap(tmp_path_factory.mktemp("llama-swap")) as running:
        yield running


def test_it_lists_both_models_and_starts_none(tmp_path: Path) -> None:
    with llama_swap(tmp_path) as swap:
        listed = swap.client.get("/v1/models").json()["data"]
        assert {model["id"] for model in listed} == {FIRST, SECOND}
        assert swap.servers() == []


def test_a_model_is_swapped_for_another_and_ends_with_status_0(tmp_path: Path) -> None:
    with llama_swap(tmp_path) as swap:
        _, first = swap.started(FIRST)
        _, second = swap.started(SECOND)
        assert second != first and not Path(f"/proc/{first}").exists()
        assert swap.started(SECOND)[1] == second
        assert swap.started(FIRST)[1] not in (first, second)
        assert swap.ended(FIRST, 1) == swap.ended(SECOND, 1) == [CLEANLY]


def test_answers_are_the_servers(swap: LlamaSwap) -> None:
    server, _ = swap.started(FIRST)
    body: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 40, "seed": 3}
    expected = server.complete(**body)["content"]
    assert swap.complete(FIRST, **body)["content"] == expected
    body["model"] = FIRST
    text = ""
    with swap.client.stream("POST", "/completion", json=body | {"stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data: "):
                text += orjson.loads(line.removeprefix("data: "))["content"]
    assert text == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/responses", {"input": "Hello"}),
    ],
)
def test_each_api_streams_through_it(swap: LlamaSwap, path: str, body: dict[str, Any]) -> None:
    limit = {"max_output_tokens": 16} if path == "/v1/responses" else {"max_tokens": 16}
    body = body | limit | {"model": FIRST, "stream": True}
    answer = swap.client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.count("data: ") > 5


def test_no_token_is_held_back(swap: LlamaSwap) -> None:
    server, pid = swap.started(FIRST)
    with httpx.Client(base_url=swap.client.base_url) as client:
        assert streams_at_once(server, pid, client, ENDLESS | {"model": FIRST})


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_cancelled_in_the_server(swap: LlamaSwap, *, stream: bool) -> None:
    server, _ = swap.started(FIRST)
    body = ENDLESS | {"model": FIRST, "stream": stream}
    with (
        httpx.Client(base_url=swap.client.base_url, timeout=None if stream else 0.5) as client,
        contextlib.suppress(httpx.ReadTimeout),
        client.stream("POST", "/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert server.metric(RUNNING) == 1
    assert server.until(is_idle(server)) < patience(2)


def test_refusals_keep_status_text_and_retry_after(swap: LlamaSwap) -> None:
    server, _ = swap.started(FIRST)
    body = {"model": FIRST, "prompt": "Hello", "n_predict": 4}
    with server.open_request("/v1/completions", **ENDLESS):
        server.until(lambda: server.metric(RUNNING) == 1)
        with server.open_request("/completion", **body):
            server.until(lambda: server.metric(QUEUED) == 1)
            answer = swap.client.post("/completion", json=body)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["type"] == "unavailable_error"
    server.until(is_idle(server))
    wrong = swap.client.post("/completion", json=body | {"n_predict": "many"})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "n_predict"


def test_the_server_refuses_not_llama_swap(swap: LlamaSwap) -> None:
    """Without the file's limit the eleventh request at once is llama-swap's 429."""
    swap.started(FIRST)
    statuses: list[int] = []
    body = {"model": FIRST, "prompt": "Hello", "n_predict": 200, "ignore_eos": True}

    def ask() -> None:
        statuses.append(swap.client.post("/completion", json=body).status_code)

    asking = [threading.Thread(target=ask) for _ in range(30)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(patience(60))
    assert len(statuses) == 30 and set(statuses) == {200, 503}


def test_a_running_stream_is_not_swapped_out(swap: LlamaSwap) -> None:
    swap.started(FIRST)
    body = {"model": FIRST, "prompt": "Once", "max_tokens": 400, "ignore_eos": True}
    answers: list[str] = []

    def ask_the_other() -> None:
        answers.append(swap.complete(SECOND, n_predict=4)["model"])

    other = threading.Thread(target=ask_the_other)
    with swap.client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        other.start()
        told = [line for line in lines if line.startswith("data: ")]
    assert told[-1] == "data: [DONE]" and '"finish_reason":"length"' in told[-2]
    other.join(patience(60))
    assert answers == [SECOND]


def test_unloading_ends_a_stream_with_an_error_event_and_the_server_with_status_0(
    swap: LlamaSwap,
) -> None:
    swap.started(FIRST)
    n_before = len(swap.ended(FIRST, 0))
    body = ENDLESS | {"model": FIRST, "stream": True}
    with swap.client.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        unloading = threading.Thread(target=swap.client.post, args=("/api/models/unload",))
        unloading.start()
        told = [line for line in lines if line.startswith("data: ")]
    unloading.join(patience(60))
    assert orjson.loads(told[-1].removeprefix("data: "))["error"]["type"] == "unavailable_error"
    assert swap.servers() == []
    assert swap.ended(FIRST, n_before + 1)[n_before:] == [CLEANLY]


def test_an_idle_model_leaves_memory_and_comes_back(tmp_path: Path) -> None:
    with llama_swap(tmp_path, **{"ttl: 600": "ttl: 1"}) as swap:
        server, pid = swap.started(FIRST)
        server.until(lambda: swap.servers() == [], patience(30))
        assert swap.ended(FIRST, 1) == [CLEANLY]
        assert swap.started(FIRST)[1] != pid


def test_its_end_is_the_servers_end(tmp_path: Path) -> None:
    with llama_swap(tmp_path) as swap:
        _, pid = swap.started(FIRST)
        swap.process.stop()
        assert not Path(f"/proc/{pid}").exists()
        assert swap.ended(FIRST, 1) == [CLEANLY]
