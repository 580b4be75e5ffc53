"""Prompts beside streams that decode, on a real server: what a step computes of them, by counts."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.support.server import Server, serving
from tests.support.ties import assert_equal_up_to_a_tie

FLAGS = ("-np", "4", "-kvu", "-c", "4096", "--context-shift", "-cram", "0")
MOST = "unpaced_engine_prefill_beside_most_tokens"
PROMPT = [300 + i % 997 for i in range(900)]
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "n_predict": 12, "n_probs": 2}


@contextlib.contextmanager
def streams(server: Server, n: int) -> Iterator[None]:
    """While requests decode that have no end of their own."""
    before = server.metric("unpaced_engine_tokens_decoded_total")
    body = {"n_predict": -1, "ignore_eos": True, "stream": True, "cache_prompt": False}
    with contextlib.ExitStack() as stack:
        for i in range(n):
            connection = server.open_request("/completion", prompt=[400 + i], **body)
            stack.enter_context(contextlib.closing(connection))
        server.until(lambda: server.metric("unpaced_requests_running") == n)
        server.until(lambda: server.metric("unpaced_engine_tokens_decoded_total") > before + 8 * n)
        yield


def answer(server: Server) -> list[Any]:
    """The tokens of the long prompt's answer."""
    reply = server.complete(prompt=PROMPT, cache_prompt=False, **GREEDY)
    assert reply["timings"]["prompt_n"] == len(PROMPT)
    tokens: list[Any] = reply["completion_probabilities"]
    assert len(tokens) == 12
    return tokens


def test_no_step_has_more_of_a_prompt_than_the_budget() -> None:
    with serving(*FLAGS, "--prefill-budget", "32") as server:
        alone = answer(server)
        assert server.metric("unpaced_engine_prefill_beside_steps_total") == 0
        # The prompt alone: chunks of 512 and 388 tokens; no batch between 16 and 256.
        bucket = 'unpaced_engine_batch_tokens_bucket{{le="{}.0"}}'
        assert server.metric(bucket.format(256)) == server.metric(bucket.format(16))
        with streams(server, 3):
            beside = answer(server)
        assert server.metric(MOST) == 32
        assert server.metric("unpaced_engine_prefill_budget_tokens") == 32
        assert server.metric("unpaced_engine_prefill_beside_steps_total") >= len(PROMPT) // 32
        assert server.metric("unpaced_engine_longest_gap_seconds") > 0
    assert_equal_up_to_a_tie(alone, beside)


def test_props_have_the_budget_and_the_costs() -> None:
    with serving(*FLAGS, "--prefill-budget", "64") as server:
        alone = answer(server)
        with streams(server, 2):
            beside = answer(server)
        assert server.metric(MOST) == 64
        facts = server.client.get("/props").json()["unpaced"]["prefill"]
    assert facts["budget_tokens"] == 64
    assert facts["max_itl_ms"] is None
    assert facts["cost"]["n_steps"] > 0
    assert facts["cost"]["decode_step_ms"] > 0
    assert facts["cost"]["prompt_token_ms"] > 0
    assert_equal_up_to_a_tie(alone, beside)


def test_by_default_a_cpu_computes_a_part_of_a_prompt_beside_streams() -> None:
    with serving(*FLAGS) as server:
        with streams(server, 2):
            answer(server)
        assert server.metric(MOST) == 128
        facts = server.client.get("/props").json()["unpaced"]["prefill"]
        assert facts["budget_tokens"] == 128


def test_without_a_budget_a_step_is_as_large_as_without_streams() -> None:
    with serving(*FLAGS, "--prefill-budget", "0") as server:
        with streams(server, 2):
            answer(server)
        assert server.metric(MOST) > 256


def test_a_target_that_nothing_meets_leaves_prompts_their_part() -> None:
    with serving(*FLAGS, "--max-itl-ms", "0.001") as server:
        with streams(server, 3):
            answer(server)
        assert server.metric(MOST) <= 64
        assert server.client.get("/props").json()["unpaced"]["prefill"]["max_itl_ms"] == 0.001


def test_a_target_that_everything_meets_is_no_limit() -> None:
    with serving(*FLAGS, "--max-itl-ms", "60000") as server:
        answer(server)
        with streams(server, 2):
            answer(server)
        assert server.metric(MOST) > 256
