"""The GPU's decode loop against the host's: the same tokens, the same ends.

Model: the demo model, or the GGUF that UNPACED_GPU_TEST_MODEL names.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    FinishReason,
    ModelLoadError,
    SamplingParams,
    SequenceRequest,
    TokenEvent,
)

Loop = Literal["host", "ahead", "device"]
Generated = tuple[list[int], FinishReason]

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
MODEL = Path(os.environ.get("UNPACED_GPU_TEST_MODEL", str(DEMO_MODEL)))
N_CTX = int(os.environ.get("UNPACED_GPU_TEST_CTX", "0"))
N_TOKENS = int(os.environ.get("UNPACED_GPU_TEST_TOKENS", "400"))


def has_device() -> bool:
    """Whether this build and this machine have a GPU for the loop."""
    return Path("/dev/nvidiactl").exists() and "UNPACED_NO_GPU_TESTS" not in os.environ


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

GREEDY = SamplingParams(temperature=0, ignore_eos=True)
SAMPLED = {
    "greedy": GREEDY,
    "greedy, no top-k": SamplingParams(temperature=0, top_k=0, ignore_eos=True),
    "default": SamplingParams(seed=1, ignore_eos=True),
    "hot": SamplingParams(seed=2, temperature=1.5, ignore_eos=True),
    "wide": SamplingParams(seed=3, top_k=1000, top_p=1.0, min_p=0.0, ignore_eos=True),
    "top-k 1": SamplingParams(seed=3, top_k=1, ignore_eos=True),
    "temperature 1": SamplingParams(seed=3, temperature=1.0, ignore_eos=True),
    "penalties": SamplingParams(
        seed=4, repeat_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2, ignore_eos=True
    ),
    "long penalties": SamplingParams(
        seed=5, repeat_penalty=1.1, repeat_last_n=300, ignore_eos=True
    ),
    "greedy penalties": SamplingParams(temperature=0, repeat_penalty=1.3, ignore_eos=True),
    "bias": SamplingParams(
        seed=6, logit_bias=((5, 2.0), (5, 1.0), (9, -3.0), (11, float("-inf"))), ignore_eos=True
    ),
    "typical": SamplingParams(seed=7, typical_p=0.8, ignore_eos=True),
    "xtc": SamplingParams(seed=9, xtc_probability=0.5, xtc_threshold=0.05, ignore_eos=True),
    "dynamic": SamplingParams(seed=10, dynatemp_range=0.5, ignore_eos=True),
    "late penalties": SamplingParams(
        seed=11,
        repeat_penalty=1.2,
        samplers=("top_k", "penalties", "top_p", "temperature"),
        ignore_eos=True,
    ),
    "sigma": SamplingParams(seed=8, top_n_sigma=1.0, ignore_eos=True),
    "no top-k": SamplingParams(seed=12, top_k=0, ignore_eos=True),
    "mirostat 1": SamplingParams(seed=13, mirostat=1, ignore_eos=True),
    "mirostat 2": SamplingParams(seed=13, mirostat=2, ignore_eos=True),
    "dry": SamplingParams(seed=14, dry_multiplier=0.8, ignore_eos=True),
    "dry over the whole text": SamplingParams(
        seed=15, dry_multiplier=0.5, dry_penalty_last_n=-1, top_k=0, ignore_eos=True
    ),
    "top-k 5000": SamplingParams(seed=16, top_k=5000, ignore_eos=True),
    "any order, no top-k": SamplingParams(
        seed=17,
        top_k=0,
        top_n_sigma=1.5,
        xtc_probability=0.5,
        xtc_threshold=0.05,
        repeat_penalty=1.2,
        samplers=("min_p", "temperature", "xtc", "penalties", "top_p", "top_n_sigma"),
        ignore_eos=True,
    ),
}


@contextlib.asynccontextmanager
async def running_engine(
    loop: Loop, *, n_slots: int = 1, n_ctx: int = N_CTX, **options: object
) -> AsyncIterator[Engine]:
    config = EngineConfig(
        model_path=MODEL,
        n_ctx=n_ctx,
        n_slots=n_slots,
        n_threads=1,
        decode_loop=loop,
        **options,  # type: ignore[arg-type]
    )
    async with Engine(config) as engine:
        yield engine


async def events_of(engine: Engine, request: SequenceRequest) -> list[TokenEvent]:
    return [event async for event in engine.submit(request)]


async def generate(engine: Engine, request: SequenceRequest) -> Generated:
    events = await events_of(engine, request)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
    assert events[-1].n_decoded == len(tokens)
    return tokens, FinishReason(events[-1].finish_reason)


async def all_chains(loop: Loop) -> tuple[dict[str, Generated], int]:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time there was")
        results = {
            name: await generate(
                engine, SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=N_TOKENS)
            )
            for name, sampling in SAMPLED.items()
        }
        return results, engine.stats().n_tokens_device


@pytest.fixture(scope="module")
def expected() -> dict[str, Generated]:
    """Every chain's tokens from the host's loop."""
    return asyncio.run(all_chains("host"))[0]


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_every_chain_gives_the_hosts_tokens(
    loop: Loop, expected: dict[str, Generated]
) -> None:
    found, n_device = await all_chains(loop)
    different = {
        name: next(i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b)
        for name in SAMPLED
        if (pair := (found[name][0], expected[name][0]))[0] != pair[1]
    }
    assert different == {}
    assert {name: end[1] for name, end in found.items()} == {
        name: end[1] for name, end in expected.items()
    }
    # All but the first token of each request.
    assert n_device >= len(SAMPLED) * (N_TOKENS - 1)


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_ends(loop: Loop) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        whole = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=300)
        await generate(engine, whole)  # the next ones reuse its prompt's cells
        reference, _ = await generate(engine, whole)
        for n in (1, 2, 3, 7, 255, 256, 257):
            tokens, reason = await generate(
                engine, SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=n)
            )
            assert (tokens, reason) == (reference[:n], FinishReason.TOKEN_LIMIT)
        # A bias makes an EOG token certain, at the first draw or after it.
        eog = min(engine.model.eog_tokens)
        sure = SamplingParams(temperature=0, logit_bias=((eog, 1e6),))
        tokens, reason = await generate(engine, SequenceRequest(prompt=prompt, sampling=sure))
        assert (tokens, reason) == ([eog], FinishReason.EOS)
        near = prompt * (engine.model.n_ctx // len(prompt) + 1)
        for n_left in (2, 3, 40, 300):
            long = near[: max(1, engine.model.n_ctx - n_left)]
            tokens, reason = await generate(engine, SequenceRequest(prompt=long, sampling=GREEDY))
            assert (len(tokens), reason) == (
                engine.model.n_ctx - len(long),
                FinishReason.CONTEXT_LIMIT,
            )


async def test_sampling_may_end_by_eos_within_the_loop() -> None:
    results: dict[str, list[Generated]] = {}
    loops: tuple[Loop, ...] = ("host", "device", "ahead")
    for loop in loops:
        async with running_engine(loop) as engine:
            prompt = await engine.tokenize("Once upon a time")
            eog = min(engine.model.eog_tokens)
            results[loop] = [
                await generate(
                    engine,
                    SequenceRequest(
                        prompt=prompt,
                        sampling=SamplingParams(seed=seed, logit_bias=((eog, 6.0),)),
                        max_tokens=300,
                    ),
                )
                for seed in range(12)
            ]
    assert results["device"] == results["host"]
    assert results["ahead"] == results["host"]


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_cancel_within_the_loop_leaves_a_sound_cache(loop: Loop) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time there was a dog")
        request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=280)
        await generate(engine, request)  # the next ones reuse its prompt's cells
        expected, _ = await generate(engine, request)
        for n_before in (1, 2, 5, 60, 250):
            stream = engine.submit(request)
            n = 0
            seen: list[int] = []
            async for event in stream:
                if event.kind == EventKind.TOKEN:
                    seen.append(event.token)
                    n += 1
                    if n == n_before:
                        stream.cancel()
                last = event
            assert FinishReason(last.finish_reason) in (
                FinishReason.CANCELLED,
                FinishReason.TOKEN_LIMIT,
            )
            assert seen == expected[: len(seen)]
            assert last.n_cells == len(prompt) + len(seen) - 1
            # The next turn reuses what the cancelled one left.
            again, _ = await generate(engine, request)
            assert again == expected


async def test_turns_reuse_the_prefix_as_the_host_does() -> None:
    turns: dict[str, list[object]] = {}
    loops: tuple[Loop, ...] = ("host", "device", "ahead")
    for loop in loops:
        async with running_engine(loop) as engine:
            text = await engine.tokenize("Once upon a time")
            log: list[object] = []
            for turn in range(4):
                events = await events_of(
                    engine, SequenceRequest(prompt=text, sampling=GREEDY, max_tokens=90)
                )
                tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
                log.append((events[0].n_cached, tokens, events[-1].n_cells))
                text = text + tokens + [turn + 3, turn + 4]
            turns[loop] = log
    assert turns["device"] == turns["host"]
    assert turns["ahead"] == turns["host"]


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_slots_change_places_with_the_host(loop: Loop) -> None:
    async with running_engine(loop, n_slots=2) as engine:
        prompt = await engine.tokenize("Once upon a time")
        long = SequenceRequest(
            prompt=prompt, sampling=SamplingParams(seed=1, ignore_eos=True), max_tokens=200
        )
        short = SequenceRequest(
            prompt=prompt[:-1], sampling=SamplingParams(seed=2, ignore_eos=True), max_tokens=20
        )
        first = asyncio.create_task(generate(engine, long))
        for _ in range(4):
            await asyncio.sleep(0.02)
            tokens, reason = await generate(engine, short)
            assert (len(tokens), reason) == (20, FinishReason.TOKEN_LIMIT)
        tokens, reason = await first
        assert (len(tokens), reason) == (200, FinishReason.TOKEN_LIMIT)
        assert engine.stats().n_tokens_device > 0


async def test_repeats_are_identical() -> None:
    async with running_engine("device") as engine:
        prompt = await engine.tokenize("The little fox")
        request = SequenceRequest(
            prompt=prompt, sampling=SamplingParams(seed=7), max_tokens=60, cache_prompt=False
        )
        first = await generate(engine, request)
        for _ in range(100):
            assert await generate(engine, request) == first


async def test_the_loop_is_reported() -> None:
    async with running_engine("device", require_device=True) as engine:
        assert engine.decode_loop.loop == "device"
        assert engine.decode_loop.n_graph_splits == 1
        (card,) = engine.decode_loop.n_graph_nodes  # of several the emptiest
        assert card.startswith("CUDA")
        assert engine.decode_loop.elsewhere == []
        memory = engine.decode_loop.memory_bytes[card]
        assert memory["weights"] > 0.9 * engine.model.size_bytes
        assert memory["kv"] > 0
        assert engine.stats().n_window_graphs > 0
        assert engine.decode_loop.device != ""


async def test_a_required_loop_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(ModelLoadError, match="flash attention is off"):
        async with running_engine("device", flash_attn="off"):
            pass
