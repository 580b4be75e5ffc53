"""Completions over HTTP on the real engine and the demo model."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import Server, serving

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # One token a batch: a text on the cells of the request before is that of a cold prompt.
    with serving("-np", "1", "-t", "1", "-ub", "1") as running:
        yield running


def openai_text(events: list[Any], index: int = 0) -> str:
    return "".join(
        choice["text"] for e in events for choice in e["choices"] if choice["index"] == index
    )


@pytest.mark.parametrize("seed", range(5))
def test_streams_and_whole_answers_have_the_same_text(server: Server, seed: int) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 40, "seed": seed, "return_tokens": True}
    whole = server.complete(**body)
    events = server.stream(**body)
    assert "".join(e["content"] for e in events) == whole["content"]
    assert [t for e in events[:-1] for t in e["tokens"]] == whole["tokens"]
    assert events[-1]["tokens_predicted"] == whole["tokens_predicted"]
    answer = server.complete("/v1/completions", **body)
    assert answer["choices"][0]["text"] == whole["content"]
    assert openai_text(server.stream("/v1/completions", **body)) == whole["content"]


def test_seeds_decide(server: Server) -> None:
    body: dict[str, Any] = {
        "prompt": PROMPT,
        "n_predict": 30,
        "temperature": 1.5,
        "top_k": 0,
        "top_p": 1.0,
    }
    texts = [server.complete(**body, seed=seed)["content"] for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3
    free = {server.complete(**body)["content"] for _ in range(3)}
    assert len(free) > 1


def test_the_shape_of_a_native_answer(server: Server) -> None:
    answer = server.complete(prompt=PROMPT, n_predict=4, n_probs=2, ignore_eos=True)
    assert list(answer) == [
        "index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted",
        "tokens_evaluated", "generation_settings", "prompt", "has_new_line", "truncated",
        "stop_type", "stopping_word", "tokens_cached", "timings", "completion_probabilities",
    ]  # fmt: skip
    assert answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] == 4
    assert answer["tokens_cached"] == answer["tokens_evaluated"] + 3
    assert PROMPT in answer["prompt"]
    assert list(answer["timings"]) == [
        "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
        "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second",
    ]  # fmt: skip
    timings = answer["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == answer["tokens_evaluated"]
    assert timings["predicted_per_second"] == pytest.approx(3e3 / timings["predicted_ms"])
    settings = answer["generation_settings"]
    assert list(settings)[:3] == ["seed", "temperature", "dynatemp_range"]
    assert settings["temperature"] == 0.800000011920929
    assert len(settings) == 49


def test_the_shape_of_an_openai_answer(server: Server) -> None:
    answer = server.complete("/v1/completions", prompt=PROMPT, max_tokens=4, ignore_eos=True)
    assert list(answer) == [
        "choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings",
    ]  # fmt: skip
    assert list(answer["choices"][0]) == ["text", "index", "logprobs", "finish_reason"]
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("chatcmpl-")
    assert len(answer["id"]) == len("chatcmpl-") + 32
    assert answer["system_fingerprint"].startswith("b")
    usage = answer["usage"]
    assert usage["completion_tokens"] == 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + 4


def test_the_order_of_a_stream(server: Server) -> None:
    # Greedy: a token that ends within a character would have no event of its own.
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 5, "temperature": 0, "ignore_eos": True}
    frames = server.raw_stream("/v1/completions", **body)
    assert frames[-1] == b"[DONE]"
    events = server.stream("/v1/completions", **body)
    assert len(events) == 6
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * 5 + ["length"]
    assert ["usage" in event for event in events] == [False] * 5 + [True]
    native = server.raw_stream(**body)
    assert b"[DONE]" not in native
    assert len(native) == 6


def test_stop_strings_end_the_text_and_never_show(server: Server) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "n_predict": 40, "seed": 3, "temperature": 0}
    text = server.complete(**body)["content"]
    for start, length in ((5, 1), (8, 3), (11, 7), (2, 12)):
        stop = text[start : start + length]
        expected = text[: text.index(stop)]
        answer = server.complete(**body, stop=[stop, "never there"])
        assert (answer["content"], answer["stop_type"]) == (expected, "word")
        assert answer["stopping_word"] == stop
        events = server.stream(**body, stop=stop)
        assert "".join(e["content"] for e in events) == expected
    answer = server.complete("/v1/completions", **body, stop=text[3:6])
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_probabilities_are_those_of_the_softmax(server: Server) -> None:
    answer = server.complete(prompt=PROMPT, n_predict=8, n_probs=5, temperature=0, ignore_eos=True)
    entries = answer["completion_probabilities"]
    assert len(entries) == 8
    for entry in entries:
        top = entry["top_logprobs"]
        values = [candidate["logprob"] for candidate in top]
        assert len(top) == 5
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(v) for v in values) <= 1 + 1e-5
        assert entry["id"] == top[0]["id"]
        assert entry["logprob"] == top[0]["logprob"]
        assert bytes(entry["bytes"]).decode(errors="ignore").startswith(entry["token"])
    streamed = server.stream(prompt=PROMPT, n_predict=8, n_probs=5, temperature=0, ignore_eos=True)
    for event, entry in zip(streamed[:-1], entries, strict=True):
        assert event["completion_probabilities"][0]["id"] == entry["id"]


def test_probabilities_after_the_chain(server: Server) -> None:
    answer = server.complete(
        prompt=PROMPT, n_predict=4, n_probs=10, top_k=3, post_sampling_probs=True, ignore_eos=True
    )
    for entry in answer["completion_probabilities"]:
        probs = [candidate["prob"] for candidate in entry["top_probs"]]
        assert 1 <= len(probs) <= 3
        assert sum(probs) == pytest.approx(1, abs=1e-4)
        assert entry["id"] in [candidate["id"] for candidate in entry["top_probs"]]


def test_echoed_logprobs_are_those_of_generation(server: Server) -> None:
    body: dict[str, Any] = {
        "prompt": PROMPT,
        "n_predict": 12,
        "temperature": 0,
        "n_probs": 3,
        "ignore_eos": True,
    }
    generated = server.complete(**body, return_tokens=True, cache_prompt=False)
    prompt = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json()["tokens"]
    tokens = prompt + generated["tokens"]
    for max_tokens in (0, 1):
        answer = server.complete(
            "/v1/completions",
            prompt=[tokens, tokens[:-1]],
            echo=True,
            max_tokens=max_tokens,
            logprobs=1,
            temperature=0,
        )
        legacy = answer["choices"][0]["logprobs"]
        assert {len(legacy[key]) for key in legacy} == {len(tokens) + max_tokens}
        assert legacy["token_logprobs"][0] is None
        assert legacy["top_logprobs"][0] is None
        for i, entry in enumerate(generated["completion_probabilities"]):
            at = len(prompt) + i
            assert legacy["token_logprobs"][at] == pytest.approx(entry["logprob"], abs=2e-3)
            assert max(legacy["top_logprobs"][at].values()) == legacy["token_logprobs"][at]
        assert len(answer["choices"][1]["logprobs"]["tokens"]) == len(tokens) - 1 + max_tokens
        assert answer["usage"]["completion_tokens"] == 2 * max_tokens


def test_echo_shows_the_prompt_as_it_was(server: Server) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}
    plain = server.complete("/v1/completions", **body)["choices"][0]["text"]
    echoed = server.complete("/v1/completions", **body, echo=True)["choices"][0]["text"]
    assert echoed == PROMPT + plain
    assert openai_text(server.stream("/v1/completions", **body, echo=True)) == echoed
    legacy = server.complete("/v1/completions", **body, echo=True, logprobs=0)["choices"][0]
    offsets, tokens = legacy["logprobs"]["text_offset"], legacy["logprobs"]["tokens"]
    for offset, token in zip(offsets[2:], tokens[2:], strict=True):
        assert echoed[offset:].startswith(token)


def test_several_choices_have_the_seeds_that_follow(server: Server) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 20, "temperature": 1.2}
    singles = [
        server.complete("/v1/completions", **body, seed=100 + i)["choices"][0]["text"]
        for i in range(3)
    ]
    answer = server.complete("/v1/completions", **body, seed=100, n=3)
    assert [choice["text"] for choice in answer["choices"]] == singles
    events = server.stream("/v1/completions", **body, seed=100, n=3)
    assert [openai_text(events, i) for i in range(3)] == singles
    native = server.complete(**body, seed=100, n=3)
    assert [choice["content"] for choice in native] == singles


def test_several_prompts_of_every_form(server: Server) -> None:
    ids = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json()["tokens"]
    body: dict[str, Any] = {"max_tokens": 8, "temperature": 0}
    text = server.complete("/v1/completions", **body, prompt=PROMPT)["choices"][0]["text"]
    answer = server.complete("/v1/completions", **body, prompt=[PROMPT, ids, [PROMPT]])
    assert [choice["text"] for choice in answer["choices"]] == [text] * 3
    assert answer["usage"]["prompt_tokens"] == 3 * len(ids)


def test_a_cached_prefix_is_reused_and_told(server: Server) -> None:
    body: dict[str, Any] = {
        "prompt": PROMPT + " there was a small dog that",
        "n_predict": 2,
        "temperature": 0,
    }
    first = server.complete(**body)
    second = server.complete(**body)
    assert second["timings"]["cache_n"] == second["tokens_evaluated"] - 1
    cold = server.complete(**body, cache_prompt=False)
    assert cold["timings"]["cache_n"] == 0
    assert first["content"] == second["content"] == cold["content"]


def test_the_context_ends_a_completion(server: Server) -> None:
    n_ctx = server.client.get("/props").json()["default_generation_settings"]["n_ctx"]
    answer = server.complete(prompt=PROMPT, n_predict=-1, ignore_eos=True)
    assert (answer["stop_type"], answer["truncated"]) == ("limit", True)
    assert answer["tokens_evaluated"] + answer["tokens_predicted"] in (n_ctx, n_ctx + 1)


def test_verbose_shows_the_native_answer(server: Server) -> None:
    answer = server.complete("/v1/completions", prompt=PROMPT, max_tokens=2, verbose=True)
    assert answer["__verbose"]["content"] == answer["choices"][0]["text"]
    assert PROMPT in answer["__verbose"]["prompt"]


def test_timings_come_with_every_token_where_asked_for(server: Server) -> None:
    for path in ("/completion", "/v1/completions"):
        events = server.stream(
            path, prompt=PROMPT, n_predict=4, temperature=0, timings_per_token=True
        )
        counts = [event["timings"]["predicted_n"] for event in events]
        assert counts[:-1] == list(range(1, len(counts)))
        assert counts[-1] == counts[-2]


def test_biases_decide(server: Server) -> None:
    ids = server.post("/tokenize", {"content": PROMPT}).json()["tokens"]
    answer = server.complete(
        prompt=PROMPT, n_predict=5, logit_bias=[[ids[-1], 1000]], return_tokens=True
    )
    assert answer["tokens"] == [ids[-1]] * 5
    greedy = server.complete(prompt=PROMPT, n_predict=1, temperature=0, return_tokens=True)
    banned = server.complete(
        prompt=PROMPT,
        n_predict=1,
        temperature=0,
        return_tokens=True,
        logit_bias={str(greedy["tokens"][0]): False},
    )
    assert banned["tokens"] != greedy["tokens"]
