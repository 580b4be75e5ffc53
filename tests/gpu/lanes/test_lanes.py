"""Several requests in the GPU's loop at once: the host's tokens, and the server's whole way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_ext import EventKind, FinishReason, SamplingParams, SequenceRequest, TokenEvent
from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import (
    GREEDY,
    Loop,
    events_of,
    generate,
    has_device,
    running_engine,
)
from tests.support.device.gpu_program import await_gpu_program, needs_gpu_programs
from tests.support.ties import assert_equal_up_to_a_tie

N_TOKENS = 120
N_LANES = 8

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]


def entries_of(events: list[TokenEvent]) -> list[dict[str, Any]]:
    """Tokens with their likeliest alternatives, as ties are judged by."""
    return [
        {
            "id": event.token,
            "logprob": event.logprob,
            "top_logprobs": [
                {"id": token, "logprob": logprob} for token, logprob in event.top_logprobs
            ],
        }
        for event in events
        if event.kind == EventKind.TOKEN
    ]


async def run_lanes_test(folder: Path, architecture: str, *arguments: str) -> None:
    """tests/gpu/cpp/lanes_test.cpp, on a random model of the architecture."""
    model = folder / "model.gguf"
    write_random_model(model, architecture)
    await await_gpu_program("lanes_test", str(model), *arguments)


@pytest.mark.parametrize("architecture", ["llama", "llama-moe", "qwen2", "qwen3", "gemma"])
@pytest.mark.parametrize("loop", ["device", "ahead"])
@needs_gpu_programs
async def test_crowds_have_the_hosts_tokens(loop: Loop, architecture: str, tmp_path: Path) -> None:
    await run_lanes_test(tmp_path, architecture, loop)


# From nine on a graph has rows of padding.
@pytest.mark.parametrize("architecture", ["llama", "llama-moe", "gemma"])
@needs_gpu_programs
async def test_crowds_of_more_than_eight_have_the_hosts_tokens(
    architecture: str, tmp_path: Path
) -> None:
    await run_lanes_test(tmp_path, architecture, "device", "32")


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("loop", ["device", "ahead"])
@pytest.mark.parametrize("kv_unified", [True, False])
async def test_streams_at_once_are_the_loops(loop: Loop, n: int, kv_unified: bool) -> None:
    async with running_engine(
        loop, n_slots=N_LANES, kv_unified=kv_unified, n_lanes=N_LANES, n_ctx=8192
    ) as engine:
        assert (engine.decode_loop.n_lanes, engine.decode_loop.lanes_why) == (N_LANES, "")
        prompts = [
            await engine.tokenize(f"Once upon a time there were {i} foxes") for i in range(n)
        ]
        for sampling in (
            [GREEDY] * n,
            [SamplingParams(seed=i, ignore_eos=True) for i in range(n)],
            [SamplingParams(seed=i, top_k=0, ignore_eos=True) for i in range(n)],
        ):
            before = engine.stats().n_tokens_device
            answers = await asyncio.gather(
                *(
                    generate(
                        engine,
                        SequenceRequest(prompt=prompt, sampling=params, max_tokens=N_TOKENS),
                    )
                    for prompt, params in zip(prompts, sampling, strict=True)
                )
            )
            assert [(len(tokens), reason) for tokens, reason in answers] == [
                (N_TOKENS, FinishReason.TOKEN_LIMIT)
            ] * n
            # All that is left to the host is what it computes beside prompts.
            assert engine.stats().n_tokens_device - before > n * N_TOKENS * 0.8


@pytest.mark.parametrize("loop", ["device", "ahead"])
@pytest.mark.parametrize("kv_unified", [True, False])
async def test_cancels_and_newcomers_leave_a_sound_cache(loop: Loop, kv_unified: bool) -> None:
    async with running_engine(
        loop, n_slots=N_LANES, kv_unified=kv_unified, n_lanes=N_LANES, n_ctx=8192
    ) as engine:
        prompt = await engine.tokenize("The little fox")
        alone = SequenceRequest(
            prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS, n_probs=8, cache_prompt=False
        )
        # In an empty cache. What is parked later moves the cells, and sums with them.
        expected = entries_of(await events_of(engine, alone))

        async def cancelled(n_before: int) -> FinishReason:
            stream = engine.submit(
                SequenceRequest(
                    prompt=[*prompt, n_before],
                    sampling=SamplingParams(seed=n_before, ignore_eos=True),
                    max_tokens=N_TOKENS,
                )
            )
            n = 0
            async for event in stream:
                n += event.kind == EventKind.TOKEN
                if n == n_before:
                    stream.cancel()
            return FinishReason(event.finish_reason)

        for _ in range(5):
            reasons = await asyncio.gather(*(cancelled(3 + 7 * i) for i in range(2 * N_LANES)))
            assert set(reasons) <= {FinishReason.CANCELLED, FinishReason.TOKEN_LIMIT}
        for _ in range(3):
            again = entries_of(await events_of(engine, alone))
            assert len(again) == N_TOKENS
            assert_equal_up_to_a_tie(expected, again)


async def test_too_many_and_a_grammar_are_the_hosts() -> None:
    async with running_engine(
        "device", n_slots=4, kv_unified=True, n_lanes=2, n_ctx=4096
    ) as engine:
        prompt = await engine.tokenize("Once upon a time")
        request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS)
        answers = await asyncio.gather(*(generate(engine, request) for _ in range(4)))
        assert {(len(tokens), reason) for tokens, reason in answers} == {
            (N_TOKENS, FinishReason.TOKEN_LIMIT)
        }
        assert engine.stats().n_requests_host["shared"] > 0


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
@pytest.mark.parametrize("kv_unified", [True, False])
async def test_company_moves_no_text_but_at_ties(kv_unified: bool, cache_type: str) -> None:
    async with running_engine(
        "device",
        n_slots=N_LANES,
        kv_unified=kv_unified,
        n_lanes=N_LANES,
        n_ctx=8192,
        cache_type_k=cache_type,
        cache_type_v=cache_type,
    ) as engine:
        assert (engine.decode_loop.n_lanes, engine.decode_loop.lanes_why) == (N_LANES, "")
        requests = [
            SequenceRequest(
                prompt=await engine.tokenize(f"Once upon a time there were {i} foxes"),
                sampling=GREEDY,
                max_tokens=N_TOKENS - 9 * i,
                n_probs=8,
                cache_prompt=False,
            )
            for i in range(N_LANES)
        ]
        # They end one after the other: streams between others' are nobody's for a while.
        together = await asyncio.gather(*(events_of(engine, request) for request in requests))
        assert engine.stats().steps.n_lane_tokens > 0.8 * sum(r.max_tokens for r in requests[1:])
        for request, answer in zip(requests, together, strict=True):
            alone = entries_of(await events_of(engine, request))
            assert len(alone) == request.max_tokens
            assert_equal_up_to_a_tie(alone, entries_of(answer))


@pytest.mark.parametrize("architecture", ["llama", "gemma"])
@needs_gpu_programs
async def test_streams_of_their_own_have_the_hosts_tokens(
    architecture: str, tmp_path: Path
) -> None:
    await run_lanes_test(tmp_path, architecture, "device", "8", "streams")
