"""What evaluation tools ask for: the probabilities of given texts, many at a time."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.pair import tiny_model
from tests.support.server import Server, serving

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "engine_ext/models/demo.gguf"
N_CHUNK = 64
"""Tokens of such a prompt that are computed at a time (csrc/request/prompt_logprob_rows.h)."""
TEXT = "Once upon a time there was a little fox who lived near the old mill. One day she found a "


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-np", "1", "-t", "1", "-tb", "1") as running:
        yield running


@pytest.fixture(scope="module")
def prompts(server: Server) -> list[list[int]]:
    """Four prompts of 251 tokens or more: 1000 positions that have a probability."""
    made = []
    for seed in range(4):
        body: dict[str, Any] = {"prompt": TEXT, "n_predict": 260, "seed": seed, "ignore_eos": True}
        answer = server.complete(**body, return_tokens=True, temperature=1.2)
        first = server.post("/tokenize", {"content": TEXT, "add_special": True}).json()["tokens"]
        made.append([*first, *answer["tokens"]][:251])
    return made


def test_a_thousand_probabilities_are_those_of_the_plain_softmax(
    server: Server, prompts: list[list[int]]
) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/support/llama/llama_logits.py", MODEL, str(N_CHUNK)],
        input=json.dumps(prompts), capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = json.loads(done.stdout)
    for max_tokens in (0, 1):
        answer = server.complete(
            "/v1/completions", prompt=prompts, max_tokens=max_tokens, echo=True, logprobs=1
        )
        n_positions = 0
        for index, (choice, truth) in enumerate(zip(answer["choices"], expected, strict=True)):
            assert choice["index"] == index
            logprobs = choice["logprobs"]
            assert len(logprobs["tokens"]) == 251 + max_tokens
            for name in ("token_logprobs", "top_logprobs", "text_offset"):
                assert len(logprobs[name]) == len(logprobs["tokens"])
            assert logprobs["token_logprobs"][0] is None
            assert logprobs["top_logprobs"][0] is None
            tokens = logprobs["token_logprobs"][1:251]
            best = [max(entry.values()) for entry in logprobs["top_logprobs"][1:251]]
            n_positions += len(tokens)
            worst = max(abs(a - b) for a, b in zip(tokens, truth["token"], strict=True))
            assert worst <= 1e-4
            assert max(abs(a - b) for a, b in zip(best, truth["best"], strict=True)) <= 1e-4
        assert n_positions == 1000


def test_the_native_way_of_asking_gets_the_native_list(
    server: Server, prompts: list[list[int]]
) -> None:
    body: dict[str, Any] = {"prompt": prompts[:2], "max_tokens": 2, "echo": True, "seed": 1}
    body["cache_prompt"] = False  # in the same batches every time
    legacy = server.complete("/v1/completions", **body, logprobs=3)["choices"]
    native = server.complete("/v1/completions", **body, n_probs=3)["choices"]
    for old, new in zip(legacy, native, strict=True):
        assert new["text"] == old["text"]
        content = new["logprobs"]["content"]
        assert [entry["id"] for entry in content[:251]] == prompts[new["index"]]
        assert content[0]["logprob"] is None
        assert content[0]["top_logprobs"] == []
        assert [entry["logprob"] for entry in content] == old["logprobs"]["token_logprobs"]
        for entry in content[1:]:
            assert len(entry["top_logprobs"]) == 3
            assert all(top["logprob"] <= 0 for top in entry["top_logprobs"])
    events = server.stream("/v1/completions", **body, n_probs=3)
    streamed = [
        entry
        for event in events
        for choice in event["choices"]
        if choice["index"] == 1 and choice["logprobs"] is not None
        for entry in choice["logprobs"]["content"]
    ]
    assert streamed == native[1]["logprobs"]["content"]


def test_a_continuation_is_scored_in_one_request_a_candidate(server: Server) -> None:
    """As lm-eval's multiple choice does it: the sum over the last tokens of context + answer."""
    context = server.post("/tokenize", {"content": TEXT, "add_special": True}).json()["tokens"]
    answers = [
        server.post("/tokenize", {"content": word}).json()["tokens"] for word in (" key", " qqq")
    ]
    body: dict[str, Any] = {"prompt": [context + answer for answer in answers], "max_tokens": 0}
    choices = server.complete("/v1/completions", **body, echo=True, logprobs=1)["choices"]
    scores = [sum(choice["logprobs"]["token_logprobs"][len(context) :]) for choice in choices]
    assert all(math.isfinite(score) for score in scores)
    assert scores[0] > scores[1]


ODD_TEXTS = (
    TEXT,
    " a space in front",
    "\n\n\ttabs and lines  and   spaces ",
    "Zoë 😀 日本語 e\u0301",
    "<s>control</s> tokens <|im_start|>user\nhi<|im_end|>",
    "a",
)


@pytest.mark.parametrize("family", ["demo", "llama-spm", "gpt-2"])
def test_the_tokens_of_an_echo_joined_are_its_text(family: str) -> None:
    model = MODEL if family == "demo" else tiny_model(family)
    with serving("-m", str(model), "-np", "1", "-t", "1", "-tb", "1", "-c", "512") as server:
        for prompt in ODD_TEXTS:
            for max_tokens in (0, 6):
                body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_tokens, "seed": 1}
                body |= {"logprobs": 2, "cache_prompt": False}  # in the same batches every time
                choice = server.complete("/v1/completions", **body, echo=True)["choices"][0]
                text, logprobs = choice["text"], choice["logprobs"]
                assert text.startswith(prompt)
                assert "".join(logprobs["tokens"]) == text
                ends = [*logprobs["text_offset"][1:], len(text)]
                parts = zip(logprobs["tokens"], logprobs["text_offset"], ends, strict=True)
                assert all(text[start:end] == token for token, start, end in parts)
            plain = server.complete("/v1/completions", **body)["choices"][0]
            assert "".join(plain["logprobs"]["tokens"]) == plain["text"] == text[len(prompt) :]
