"""What clients get wrong, on the real engine: every fault is answered, the next request served."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import Server, serving
from tests.support.ties import assert_equal_up_to_a_tie

PROMPT = "Once upon a time"
ENDLESS: dict[str, Any] = {"prompt": PROMPT, "ignore_eos": True, "n": 128, "max_tokens": -1}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-t", "1", "-np", "1", "--ubatch-size", "32") as running:
        yield running


@pytest.fixture
def n_vocab(server: Server) -> int:
    return int(server.client.get("/v1/models").json()["data"][0]["meta"]["n_vocab"])


def served(server: Server) -> str:
    """The next request: greedy and on no cells of others, so always the same."""
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 4, "temperature": 0}
    return str(server.complete(**body, cache_prompt=False)["content"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a", "b", {}]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({}, "prompt"),
        ({"prompt": PROMPT, "n_predict": "many"}, "n_predict"),
        ({"prompt": PROMPT, "top_k": 2.5}, "top_k"),
        ({"prompt": PROMPT, "repeat_last_n": 2**31}, "repeat_last_n"),
        ({"prompt": PROMPT, "repeat_penalty": 0}, "repeat_penalty"),
        ({"prompt": PROMPT, "logit_bias": [[10**9, 1]]}, "logit_bias"),
        ({"prompt": PROMPT, "logit_bias": [[-1, False]]}, "logit_bias"),
        ({"prompt": PROMPT, "grammar": "root ::= " + "(" * 20000}, "grammar"),
        ({"prompt": PROMPT, "backend_sampling": 1}, "backend_sampling"),
        ({"prompt": PROMPT, "n": 0}, "n"),
        ({"prompt": PROMPT, "dry_multiplier": 1, "dry_sequence_breakers": []},
         "dry_sequence_breakers"),
    ],
)  # fmt: skip
def test_faults_name_the_field(server: Server, body: dict[str, Any], param: str) -> None:
    before = served(server)
    for stream in (False, True):
        response = server.post("/v1/completions", body | {"stream": stream})
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/json; charset=utf-8"
        assert response.json()["error"]["param"] == param
    assert served(server) == before


@pytest.mark.parametrize(
    "body", [b'{"prompt": NaN}', b'{"temperature": 1e999}', b"", b"\xff", b"5"]
)
def test_bodies_that_are_no_json(server: Server, body: bytes) -> None:
    assert server.post("/completion", body).status_code == 400
    assert served(server)


def test_ids_outside_the_vocabulary(server: Server, n_vocab: int) -> None:
    for token in (-1, n_vocab, 2**31 - 1, 2**31, 2**63, -(2**31)):
        response = server.post("/completion", {"prompt": [1, token]})
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "Prompt contains invalid tokens"
        assert server.post("/detokenize", {"tokens": [token]}).status_code == 400
    assert served(server)


def test_extreme_but_legal_values(server: Server, n_vocab: int) -> None:
    extremes: list[dict[str, Any]] = [
        {"top_k": 2**31 - 1},
        {"top_k": 0, "top_p": 1, "min_p": 0},
        {"temperature": 3e38},
        {"temperature": 1e-38},
        {"repeat_last_n": 2**31 - 1, "repeat_penalty": 1e30},
        {"frequency_penalty": 3e38},
        {"presence_penalty": -3e38},
        {"dry_multiplier": 1e30, "dry_allowed_length": 0, "dry_base": 1e30},
        {"dry_multiplier": 1, "dry_penalty_last_n": 2**31 - 1, "dry_allowed_length": 2**31 - 1},
        {"mirostat": 1, "mirostat_tau": -1},
        {"samplers": "kpa", "adaptive_target": 0.3},
        {"backend_sampling": True, "top_k": 10**6},  # aborts llama-server
        {"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 1e30},
        {"xtc_probability": 1, "xtc_threshold": 0},
        {"top_n_sigma": 0},
        {"typical_p": 0},
        {"min_keep": 2**31 - 1},
        {"n_probs": 2**31 - 1},
        {"n_probs": n_vocab, "post_sampling_probs": True},
        {"samplers": ["top_k"] * 16},
        {"samplers": []},
        {"dynatemp_range": 1e30, "dynatemp_exponent": -1e30},
        {"stop": ["x" * 4096] * 256},
        {"seed": 2**64 - 1},
        {"logit_bias": [[token, False] for token in range(n_vocab)]},
        {"logit_bias": [[1, 3.4e38], [1, 3.4e38]]},
    ]
    for extreme in extremes:
        response = server.post("/completion", {"prompt": PROMPT, "n_predict": 3} | extreme)
        assert response.status_code in (200, 400, 500), (extreme, response.text)
        if response.status_code == 500:
            assert "not finite" in response.json()["error"]["message"], extreme
        assert served(server), extreme


@pytest.mark.parametrize("n_texts", [1, 3])
def test_long_texts_of_biases_are_refused_before_they_are_tokenised(
    server: Server, n_texts: int
) -> None:
    """What is refused for its tokens is told their limit: that needs them, a second for 4 MB."""
    text = "a" * (8 * 32_768 // n_texts + 1)
    body = {"prompt": PROMPT, "logit_bias": [[text, 1]] * n_texts}
    response = server.post("/completion", body)
    assert response.status_code == 400
    assert "262144 letters of text" in response.json()["error"]["message"]
    body["logit_bias"] = [[text[: -2 * n_texts], 1]] * n_texts
    assert "at most 32768 tokens" in server.post("/completion", body).json()["error"]["message"]


def test_a_prompt_longer_than_the_context(server: Server) -> None:
    n_ctx = server.client.get("/props").json()["default_generation_settings"]["n_ctx"]
    token = server.post("/tokenize", {"content": PROMPT}).json()["tokens"][0]
    for n in (n_ctx - 2, n_ctx - 1, n_ctx, n_ctx + 1, 10 * n_ctx):
        response = server.post(
            "/completion", {"prompt": [token] * n, "n_predict": 5, "ignore_eos": True}
        )
        if n < n_ctx:
            assert response.status_code == 200
            assert response.json()["stop_type"] == "limit"
            continue
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (n, n_ctx)
    assert served(server)


def test_a_million_letters_do_not_crash_the_tokeniser(server: Server) -> None:
    for text in ("a" * 1_000_000, "é" * 300_000, " " * 300_000, "(" * 300_000):
        assert server.post("/completion", {"prompt": text}).status_code in (200, 400)
    assert served(server)


def running(server: Server) -> float:
    return server.metric("unpaced_requests_running") + server.metric("unpaced_requests_waiting")


def cancelled(server: Server) -> float:
    (model,) = (each["id"] for each in server.client.get("/v1/models").json()["data"])
    name = f'unpaced_completions_cancelled_total{{model="{model}",phase="%s"}}'
    return sum(server.metric(name % phase) for phase in ("queued", "prefill", "decode"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 128])
def test_a_client_that_leaves_frees_slot_and_queue(server: Server, stream: bool, n: int) -> None:
    n_before = cancelled(server)
    for _ in range(5):
        with server.open_request("/v1/completions", **ENDLESS | {"n": n, "stream": stream}) as made:
            if stream:
                assert made.recv(64).startswith(b"HTTP/1.1 200")
            elif n > 1:
                server.until(lambda: server.metric("unpaced_requests_running") == 1)
        assert server.until(lambda: running(server) == 0) < 20
    if stream or n > 1:
        assert cancelled(server) >= n_before + 5 * n - 5
    assert served(server)


def test_a_client_that_leaves_the_queue_disturbs_nobody(server: Server) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 100, "temperature": 0, "n_probs": 2}
    body |= {"ignore_eos": True, "cache_prompt": False}
    alone = server.complete(**body)["completion_probabilities"]
    results: list[Any] = []

    def active() -> None:
        events = server.stream(**body)[:-1]
        results.extend(e for event in events for e in event["completion_probabilities"])

    thread = threading.Thread(target=active)
    with (
        server.open_request("/v1/completions", **ENDLESS),
        server.open_request("/v1/completions", **ENDLESS),
    ):
        thread.start()
        server.until(lambda: server.metric("unpaced_requests_waiting") > 100)
    thread.join(60)
    assert len(results) == 100
    assert_equal_up_to_a_tie(alone, results)  # its cells may lie elsewhere
    assert server.until(lambda: running(server) == 0) < 20


def test_a_client_that_does_not_read_holds_up_nobody() -> None:
    with serving("-t", "1", "-np", "2", "--send-timeout", "1") as server:
        body: dict[str, Any] = {"prompt": PROMPT, "ignore_eos": True, "stream": True, "n_probs": 50}
        alone = server.complete(prompt=PROMPT, n_predict=50, temperature=0, ignore_eos=True)
        with server.open_request("/completion", **body):
            time.sleep(0.1)
            for _ in range(3):
                answer = server.complete(
                    prompt=PROMPT, n_predict=50, temperature=0, ignore_eos=True
                )
                assert answer["tokens_predicted"] == alone["tokens_predicted"]
            server.until(lambda: running(server) == 0)


def test_a_full_queue_refuses_at_once() -> None:
    with serving("-t", "1", "-np", "1", "--max-queue-requests", "127") as server:
        with server.open_request("/v1/completions", **ENDLESS):
            server.until(lambda: server.metric("unpaced_requests_waiting") >= 100)
            started = time.monotonic()
            refused = server.post("/completion", {"prompt": PROMPT, "n": 120})
            assert time.monotonic() - started < 20  # and not when its turn comes: never
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert "queue is full" in refused.json()["error"]["message"]
        server.until(lambda: running(server) == 0)
        assert served(server)


def test_many_requests_leave_nothing_behind(server: Server) -> None:
    def footprint() -> tuple[int, int]:
        task = f"/proc/{server.process.pid}"
        return len(os.listdir(f"{task}/fd")), len(os.listdir(f"{task}/task"))

    for i in range(30):
        server.stream(prompt=PROMPT, n_predict=3, seed=i)
    # The template process comes with the first need, or a second after the start.
    assert server.post(
        "/apply-template", {"messages": [{"role": "user", "content": "x"}]}
    ).is_success
    before = footprint()
    for i in range(200):
        server.stream(prompt=PROMPT, n_predict=3, seed=i, n_probs=2)
    after = footprint()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


def test_metrics_are_the_sums_of_the_answers(server: Server) -> None:
    names = ("llamacpp:tokens_predicted_total", "llamacpp:prompt_tokens_total")
    before = [server.metric(name) for name in names]
    n_predicted = n_prompt = 0
    for n in (1, 4, 16):
        timings = server.complete(prompt=PROMPT, n_predict=n, ignore_eos=True)["timings"]
        n_predicted += timings["predicted_n"]
        n_prompt += timings["prompt_n"]
    after = [server.metric(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [n_predicted, n_prompt]
