"""What a client sends stays out of everything that others read: logs, metrics, traces, errors."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.traces.otlp_receiver import receiving
from tests.e2e.traces.test_traces import env_for
from tests.support.server import serving

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
            seen["slots"] = server.client.get("/slots").text
            receiver.wait(len(GOOD) + len(BAD) + 2)
        seen["log"] = server.log.read_text() if server.log.exists() else ""
        seen["log file"] = file.read_text()
        n_roots = sum(span.kind == 2 for span in receiver.spans)
        assert n_roots >= len(GOOD) + len(BAD) + 2
        seen["spans"] = b"".join(receiver.bodies).decode("latin-1")
    assert "request" in seen["log file"]
    found = {name: text for name, text in seen.items() if CANARY.lower() in text.lower()}
    assert {name: _around(text) for name, text in found.items()} == {}


def _around(text: str) -> str:
    at = text.lower().index(CANARY.lower())
    return text[max(0, at - 120) : at + 120]
