"""What a client sends stays out of everything that others read: logs, metrics, traces, errors."""

import contextlib
import json
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.terminal.terminal import CTRL_D, ENTER, terminal
from tests.e2e.traces.test_traces import env_for
from tests.support.monitoring.otlp_receiver import receiving
from tests.support.server import serving
from tests.support.supervision.supervised import child_of, supervised, wait_replaced
from unpaced.settings.model import DEMO_MODEL

CANARY = "Zq7canaryZq7"
KEY = f"key-{CANARY}"
HEADERS = {
    "user-agent": CANARY,
    "cookie": f"a={CANARY}",
    "referer": f"http://{CANARY}/",
    "x-anything": CANARY,
    "tracestate": f"vendor={CANARY}",
    "baggage": f"user={CANARY}",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
MESSAGES = [{"role": "system", "content": CANARY}, {"role": "user", "content": f"{CANARY} story"}]
SCHEMA = {"type": "object", "properties": {CANARY: {"type": "string"}}}
GOOD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/completion", {"prompt": CANARY, "n_predict": 2, "stop": [CANARY]}),
    ("/v1/completions", {"prompt": CANARY, "max_tokens": 2, "model": CANARY, "user": CANARY}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "stream": True}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "metadata": {"a": CANARY}}),
    ("/v1/responses", {"input": CANARY, "max_output_tokens": 2, "instructions": CANARY}),
    ("/v1/messages", {"messages": MESSAGES[1:], "max_tokens": 2, "model": CANARY}),
    ("/tokenize", {"content": CANARY}),
    ("/completion", {"prompt": CANARY, "n_predict": 2, "json_schema": SCHEMA}),
    ("/completion", {"prompt": CANARY, "n_predict": 2, "samplers": [CANARY]}),
)
# Wrong, with the canary beside what is wrong: the answer is about the field.
BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/completion", {"prompt": CANARY, "temperature": "hot"}),
    ("/completion", {"prompt": f"{CANARY} " * 4000, "n_predict": 1}),
    ("/completion", {"prompt": [CANARY, {"no": CANARY}]}),
    ("/v1/chat/completions", {"messages": [*MESSAGES, {"role": "user"}]}),
    ("/v1/chat/completions", {"messages": MESSAGES, "n": -1}),
)


def test_prompts_keys_and_headers_are_nowhere_but_in_answers(tmp_path: Path) -> None:
    file = tmp_path / "log"
    flags = ("-c", "512", "--traces", "-v", "--log-file", str(file), "--api-key", KEY)
    seen: dict[str, str] = {}
    with receiving() as receiver:
        with serving(*flags, env=env_for(receiver)) as server:
            server.client.headers.update(HEADERS)
            bad = httpx.Headers({"authorization": f"Bearer wrong-{CANARY}"})
            seen["refused"] = server.client.get("/v1/models", headers=bad).text
            assert server.client.get("/v1/models", headers=bad).status_code == 401
            server.client.headers["authorization"] = f"Bearer {KEY}"
            for path, body in GOOD:
                answer = server.post(path, body)
                assert answer.status_code == 200, (path, answer.text)
            for path, body in BAD:
                answer = server.post(path, body)
                assert answer.status_code == 400, (path, answer.text)
                seen[f"{path} {len(json.dumps(body))}"] = answer.text
            # It is not JSON, in the middle of the canary.
            seen["cut"] = server.post("/completion", b'{"prompt": "' + CANARY.encode()).text
            seen["metrics"] = server.client.get("/metrics").text
            for path in ("/", "/slots", "/props", "/v1/models", "/openapi.json", "/docs"):
                seen[path] = server.client.get(path).text
            receiver.wait(len(GOOD) + len(BAD) + 2)
        seen["log"] = server.log.read_text() if server.log.exists() else ""
        seen["log file"] = file.read_text()
        n_roots = sum(span.kind == 2 for span in receiver.spans)
        assert n_roots >= len(GOOD) + len(BAD) + 2
        seen["spans"] = b"".join(receiver.bodies).decode("latin-1")
    assert "request" in seen["log file"]
    assert where_seen(seen) == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_supervisor_tells_nothing_of_the_requests_that_it_cuts_off(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    flags = ("-c", "512", "-v", "--log-file", str(file), "--api-key", KEY)
    body = {"prompt": CANARY, "n_predict": -1, "ignore_eos": True, "stream": True}
    headers = HEADERS | {"authorization": f"Bearer {KEY}"}
    with supervised(*flags) as server:
        server.client.headers.update(headers)
        child = child_of(server.process.pid)
        with (
            contextlib.suppress(httpx.RemoteProtocolError),
            server.client.stream("POST", "/completion", json=body) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            os.kill(child, number)
            deque(lines)
        wait_replaced(server, child)
        assert server.post("/completion", {"prompt": CANARY, "n_predict": 1}).status_code == 200
        seen = {"metrics": server.client.get("/metrics").text}
        seen |= {"standard error": server.logged(), "log file": file.read_text()}
    assert number.name in seen["metrics"]
    assert "the server is replaced" in seen["standard error"] + seen["log file"]
    assert where_seen(seen) == {}


def test_the_log_of_a_chat_s_own_server_has_nothing_of_it(
    socket_folder: Path, tmp_path: Path
) -> None:
    arguments = ("chat", str(DEMO_MODEL), "-c", "512", "-v", "--system", CANARY)
    with terminal(*arguments, state=tmp_path, TMPDIR=str(socket_folder)) as screen:
        screen.until("/help lists the commands")
        screen.input("/set max_tokens 5", ENTER)
        screen.until("max_tokens = 5")
        screen.input(f"{CANARY}?", ENTER)
        screen.until("5 tokens, ")
        (file,) = socket_folder.glob("unpaced-chat-*/log")
        deadline = time.monotonic() + 30
        while "/v1/chat/completions" not in file.read_text():
            assert time.monotonic() < deadline, file.read_text()
            time.sleep(0.05)
        seen = {"log": file.read_text()}
        screen.input(CTRL_D)
        assert screen.end() == 0
    assert where_seen(seen) == {}


def where_seen(texts: dict[str, str]) -> dict[str, str]:
    """What surrounds the canary, of those that have it."""
    found = {name: text for name, text in texts.items() if CANARY.lower() in text.lower()}
    return {name: _around(text) for name, text in found.items()}


def _around(text: str) -> str:
    at = text.lower().index(CANARY.lower())
    return text[max(0, at - 120) : at + 120]
