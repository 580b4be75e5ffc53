"""The counters of tokens are the sums of what the answers' `usage` says, to the token."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from tests.support.server import Server, serving

WORDS = ("Once", "upon", "a", "time", "the", "cat", "sat", "and", "then", "it", "rained")


class Tokens(NamedTuple):
    prompt: int
    cached: int
    generated: int


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-c", "2048", "-np", "2", "--metrics-compat", "vllm") as running:
        yield running


def text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 20)))


def ask(server: Server, seed: int) -> Tokens:
    """One request of any kind; what its usage says."""
    chance = random.Random(seed)
    n = chance.randint(1, 12)
    common: dict[str, Any] = {"seed": seed, "max_tokens": n, "cache_prompt": chance.random() < 0.7}
    match seed % 6:
        case 0:
            usage = server.complete("/v1/completions", prompt=text(chance), **common)["usage"]
        case 1:
            body = {"prompt": [text(chance), text(chance)], "n": 3, "stop": ["e"]}
            usage = server.complete("/v1/completions", **(common | body))["usage"]
        case 2:
            events = server.stream(
                "/v1/completions",
                prompt=text(chance),
                stream_options={"include_usage": True},
                n=chance.randint(1, 2),
                **common,
            )
            usage = events[-1]["usage"]
        case 3:
            messages = [{"role": "user", "content": text(chance)}]
            usage = server.complete("/v1/chat/completions", messages=messages, **common)["usage"]
        case 4:
            body = {"input": text(chance), "max_output_tokens": max(n, 2), "seed": seed}
            usage = server.complete("/v1/responses", **body)["usage"]
            cached = usage["input_tokens_details"]["cached_tokens"]
            return Tokens(usage["input_tokens"], cached, usage["output_tokens"])
        case _:
            body = {"messages": [{"role": "user", "content": text(chance)}], "max_tokens": n}
            usage = server.complete("/v1/messages", **body)["usage"]
            cached = usage["cache_read_input_tokens"]
            return Tokens(usage["input_tokens"] + cached, cached, usage["output_tokens"])
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Tokens(usage["prompt_tokens"], cached, usage["completion_tokens"])


def counted(server: Server) -> Tokens:
    def read(name: str) -> int:
        return round(server.metric(f'unpaced_{name}_total{{model="demo.gguf"}}'))

    cached = read("prompt_tokens_cached")
    return Tokens(read("prompt_tokens") + cached, cached, read("generated_tokens"))


def test_counters_are_the_sums_of_every_usage(server: Server) -> None:
    before = counted(server)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda seed: ask(server, seed), range(90)))
    after = counted(server)
    sums = Tokens(*(sum(column) for column in zip(*answers, strict=True)))
    assert sums.cached > 0 and sums.generated > 300
    assert Tokens(*(b - a for a, b in zip(before, after, strict=True))) == sums
    labels = '{engine="0",model_name="demo.gguf"}'
    assert server.metric(f"vllm:prompt_tokens_total{labels}") == after.prompt
    assert server.metric(f"vllm:generation_tokens_total{labels}") == after.generated
