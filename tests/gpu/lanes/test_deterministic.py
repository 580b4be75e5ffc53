"""`deterministic` on a GPU: a request's tokens and their probabilities alone and in crowds that
change, bit by bit, in the GPU's loop and beside prompts."""

import asyncio
import struct
from pathlib import Path
from random import Random

import pytest

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import Loop, has_device

N_LANES = 8
N_CTX = 2048  # a slot's: eight windows, of which the last four have no attention of ours alone
N_VOCAB = 4096
SEED = 5

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

Bits = list[tuple[int, bytes]]


def requests() -> list[SequenceRequest]:
    """Prompts of one token to four chunks, texts across windows; some end early, some draw."""
    random = Random(SEED)
    made = []
    for i in range(20):
        n_prompt = random.choice((1, 3, 8, 60, 250, 600, 1500))
        sampling = SamplingParams(
            seed=i,
            temperature=0.0 if i % 3 == 0 else 1.2,
            top_k=0 if i % 3 == 1 else 40,
            ignore_eos=True,
        )
        made.append(
            SequenceRequest(
                prompt=[1, *random.choices(range(300, N_VOCAB), k=n_prompt)],
                sampling=sampling,
                max_tokens=random.randint(20, 300),
                n_probs=1,
            )
        )
    return made


async def bits_of(engine: Engine, request: SequenceRequest) -> Bits:
    return [
        (event.token, struct.pack("f", event.logprob))
        async for event in engine.submit(request)
        if event.kind == EventKind.TOKEN
    ]


def config_of(model: Path, loop: Loop, n_lanes: int = N_LANES, **options: object) -> EngineConfig:
    return EngineConfig(
        model_path=model,
        n_ctx=n_lanes * N_CTX,
        n_slots=n_lanes,
        n_lanes=n_lanes,
        n_threads=1,
        decode_loop=loop,
        deterministic=True,
        **options,  # type: ignore[arg-type]
    )


async def in_turns(engine: Engine, random: Random, n_most: int) -> list[Bits]:
    """All requests, each begun by chance while up to n_most run."""
    gate = asyncio.Semaphore(n_most)
    all_of_them = requests()

    async def one(i: int) -> tuple[int, Bits]:
        async with gate:
            await asyncio.sleep(random.random() * 0.02)
            return i, await bits_of(engine, all_of_them[i])

    order = random.sample(range(len(all_of_them)), len(all_of_them))
    answers = dict(await asyncio.gather(*(one(i) for i in order)))
    return [answers[i] for i in range(len(all_of_them))]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma", "mistral3"])
@pytest.mark.parametrize("loop", ["device", "ahead"])
async def test_tokens_in_a_crowd_are_those_alone(
    loop: Loop, architecture: str, tmp_path: Path
) -> None:
    await compare_crowds(tmp_path, architecture, loop, N_LANES, (2, 5, N_LANES))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma"])
async def test_more_rows_than_a_product_has_columns(architecture: str, tmp_path: Path) -> None:
    # Two eights and a four, whose builds are others.
    n_rows = await compare_crowds(tmp_path, architecture, "device", 20, (9, 13, 20))
    assert n_rows[-1] > 8


async def compare_crowds(
    folder: Path, architecture: str, loop: Loop, n_lanes: int, crowds: tuple[int, ...]
) -> list[float]:
    """The mean of rows that a step of several had, by crowd."""
    model = folder / "model.gguf"
    write_random_model(model, architecture)
    n_rows = []
    async with Engine(config_of(model, loop, n_lanes, cache_bytes_max=1 << 28)) as engine:
        assert (engine.decode_loop.n_lanes, engine.decode_loop.lanes_why) == (n_lanes, "")
        alone = [await bits_of(engine, request) for request in requests()]
        assert all(len(bits) == r.max_tokens for bits, r in zip(alone, requests(), strict=True))
        n_tokens = sum(len(bits) for bits in alone)
        for n_most in crowds:
            before = engine.stats()
            assert await in_turns(engine, Random(n_most), n_most) == alone
            after = engine.stats()
            assert after.steps.n_lane_tokens > before.steps.n_lane_tokens
            # Beside prompts, too: the host draws first tokens.
            assert after.n_tokens_device - before.n_tokens_device > 0.9 * n_tokens
            n_lane_tokens = after.steps.n_lane_tokens - before.steps.n_lane_tokens
            n_rows.append(n_lane_tokens / (after.steps.n_lane_steps - before.steps.n_lane_steps))
    return n_rows


@pytest.mark.parametrize("architecture", ["llama-moe", "qwen3moe"])
async def test_a_mixture_is_decoded_one_by_one_and_says_why(
    architecture: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    async with Engine(config_of(model, "device")) as engine:
        assert engine.decode_loop.n_lanes == 1
        assert "rows are not as alone" in engine.decode_loop.lanes_why
        alone = [await bits_of(engine, request) for request in requests()]
        assert await in_turns(engine, Random(1), N_LANES) == alone


async def test_ggmls_kernels_decode_one_by_one(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    async with Engine(config_of(model, "device", kernels="ggml")) as engine:
        assert engine.decode_loop.n_lanes == 1
        assert "rows are not as alone" in engine.decode_loop.lanes_why
        alone = [await bits_of(engine, request) for request in requests()]
        assert await in_turns(engine, Random(1), N_LANES) == alone
