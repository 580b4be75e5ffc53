"""Short prompts by captured graphs against llama_decode: the same tokens and logprobs, bit by bit.

Model: the demo model, or the GGUF that UNPACED_GPU_TEST_MODEL names.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import GREEDY, events_of, has_device, running_engine
from tests.support.device.gpu_program import needs_gpu_programs, run_gpu_program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

# Of rows of their own, of eights with rows behind the last token and without.
LENGTHS = (*range(2, 11), 13, 16, 17, 33, 64, 65, 77, 80, 81, 99, 128)
MOST = 128
CHAINS = (
    GREEDY,
    SamplingParams(seed=3, ignore_eos=True),
    SamplingParams(seed=4, temperature=1.3, top_k=0, ignore_eos=True),
    SamplingParams(seed=5, repeat_penalty=1.3, ignore_eos=True),
)

DENSE = ("llama", "mistral3", "qwen2", "qwen3", "gemma", "phi3")


@needs_gpu_programs
@pytest.mark.parametrize(
    ("architecture", "most"),
    [*((architecture, MOST) for architecture in DENSE), ("llama-moe", 8), ("qwen3moe", 8)],
)
def test_every_length_has_llama_decodes_bits(architecture: str, most: int, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    run_gpu_program("prompt_graphs_test", model, str(most))


@needs_gpu_programs
@pytest.mark.parametrize("n_tokens", [3, 8, 16, 40, 80, 88, 128])
@pytest.mark.parametrize("architecture", DENSE)
def test_phases_of_a_prompt_have_ggmls_bits(
    architecture: str, n_tokens: int, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    run_gpu_program("step_phases_test", model, "f16", "256", str(n_tokens))


def text(engine: Engine, n: int, seed: int) -> list[int]:
    """Tokens that no other seed's text begins with."""
    n_vocab = engine.model.n_vocab
    return [3 + (seed * 7919 + i * (104729 + 2 * seed)) % (n_vocab - 3) for i in range(n)]


async def answer(engine: Engine, prompt: list[int], seed: int, **more: Any) -> object:
    request = SequenceRequest(
        prompt=prompt, sampling=CHAINS[seed % len(CHAINS)], max_tokens=3, n_probs=4, **more
    )
    return [
        (event.n_cached, event.token, event.logprob, event.top_logprobs)
        for event in await events_of(engine, request)
        if event.kind == EventKind.TOKEN
    ]


def differing(found: list[object], expected: list[object]) -> list[int]:
    assert len(found) == len(expected)
    return [i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]


async def every_length(kernels: Any) -> list[object]:
    async with running_engine("device", n_ctx=1024, kernels=kernels) as engine:
        found = []
        for _ in range(2):  # the first time some lack their graph
            n_before = engine.stats().n_prompts_graph
            for n in (1, *LENGTHS, MOST + 1):
                found.append(await answer(engine, text(engine, n, n), n, cache_prompt=False))
            await asyncio.sleep(0.3)
        n_graph = engine.stats().n_prompts_graph - n_before
        assert n_graph == (len(LENGTHS) if kernels == "own" else 0)
        return found


async def test_every_length() -> None:
    assert differing(await every_length("own"), await every_length("ggml")) == []


async def after_a_prefix(kernels: Any) -> list[object]:
    """Prompts whose first tokens are in the KV already, twice: graphs are captured in between."""
    found = []
    async with running_engine("device", n_ctx=1024, kernels=kernels) as engine:
        for turn in range(2):
            for n_before in (1, 100, 250, 505, 640):
                for n in (2, 5, 8, 21, 70):
                    prefix = text(engine, n_before, 1000 * turn + n_before)
                    await events_of(
                        engine, SequenceRequest(prompt=prefix, sampling=GREEDY, max_tokens=0)
                    )
                    found.append(await answer(engine, prefix + text(engine, n, 7 * n), n))
                    await asyncio.sleep(0.1)
        if kernels == "own":
            assert engine.stats().n_prompts_graph >= 25
        return found


async def test_after_a_cached_prefix() -> None:
    assert differing(await after_a_prefix("own"), await after_a_prefix("ggml")) == []


async def conversations(kernels: Any, *, kv_unified: bool) -> list[object]:
    """Several slots in turn, whose cells lie between each other's; each turn adds to its own."""
    found: list[object] = []
    async with running_engine(
        "device", n_slots=3, n_ctx=3072, kv_unified=kv_unified, kernels=kernels
    ) as engine:
        texts = [text(engine, 9 + 20 * slot, slot + 1) for slot in range(3)]
        for turn in range(8):
            for slot in range(3):
                found.append(await answer(engine, texts[slot], turn, id_slot=slot))
                texts[slot] = texts[slot] + text(engine, 2 + turn % 7, 50 + turn)
                if turn == 4:
                    texts[slot] = texts[slot][:20]  # cells in the middle are free again
            await asyncio.sleep(0.3)  # what was wanted is captured
        if kernels == "own":
            # Streams of the KV have graphs of their own: a length comes again in the last turn.
            assert engine.stats().n_prompts_graph >= (9 if kv_unified else 3)
        return found


@pytest.mark.parametrize("kv_unified", [False, True])
async def test_several_slots(kv_unified: bool) -> None:
    found = await conversations("own", kv_unified=kv_unified)
    assert differing(found, await conversations("ggml", kv_unified=kv_unified)) == []


async def test_at_the_same_time() -> None:
    """Prompts beside others that decode: whichever way they go, each comes to its end."""
    async with running_engine("device", n_slots=4, n_ctx=4096, kernels="own") as engine:
        requests = [
            SequenceRequest(prompt=text(engine, 2 + i % 9, i), sampling=GREEDY, max_tokens=10 + i)
            for i in range(40)
        ]
        answers = await asyncio.gather(*(events_of(engine, request) for request in requests))
        assert [events[-1].n_decoded for events in answers] == [10 + i for i in range(40)]


async def shifted_chunks(kernels: Any) -> list[object]:
    """Cells that are reused at another place: llama.cpp has to move them first."""
    async with running_engine("device", n_ctx=1024, kernels=kernels) as engine:
        found = []
        for i in range(4):
            kept = text(engine, 60, 300 + i)
            first = text(engine, 30, 200 + i) + kept
            await events_of(engine, SequenceRequest(prompt=first, sampling=GREEDY, max_tokens=0))
            then = text(engine, 10, 400 + i) + kept + text(engine, 5, 500 + i)
            found.append(await answer(engine, then, i, n_cache_reuse=16))
        return found


async def test_reused_chunks_are_moved_first() -> None:
    assert differing(await shifted_chunks("own"), await shifted_chunks("ggml")) == []


async def test_what_llama_decode_computes() -> None:
    async with running_engine("device", n_ctx=1024, kernels="own") as engine:
        long = SequenceRequest(prompt=text(engine, MOST + 1, 1), sampling=GREEDY, max_tokens=1)
        rows = SequenceRequest(
            prompt=text(engine, 8, 2),
            sampling=GREEDY,
            max_tokens=1,
            n_probs=1,
            prompt_logprobs=True,
        )
        for request in (long, rows):
            await events_of(engine, request)
        assert engine.stats().n_prompts_graph == 0
        short = SequenceRequest(prompt=text(engine, 8, 3), sampling=GREEDY, max_tokens=1)
        await events_of(engine, short)
        assert engine.stats().n_prompts_graph == 1


async def test_what_has_none_says_why(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_random_model(path, "llama")
    for options, why in (
        ({"kernels": "ggml"}, "asks for ggml's kernels"),
        ({"kernels": "own", "cache_type_k": "q8_0", "cache_type_v": "q8_0"}, "quantised"),
    ):
        config = EngineConfig(model_path=path, n_ctx=1024, n_threads=1, **options)  # type: ignore[arg-type]
        async with Engine(config) as engine:
            assert why in engine.decode_loop.prompts_why
            assert engine.decode_loop.prompt_lengths == []
            prompt = text(engine, 5, 1)
            await events_of(engine, SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=1))
            assert engine.stats().n_prompts_graph == 0
