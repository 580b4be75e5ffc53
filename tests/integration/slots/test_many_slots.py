"""Slots that share their cells, so many that llama.cpp has hundreds of sequences."""

import asyncio
from pathlib import Path

import pytest

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[3] / "engine_ext" / "models" / "demo.gguf"


# 21: 64 sequences with those of kept prompts; 22 and 32: 128, more than there are rows of logits
# for slots and prompts; 64: 256, all that llama.cpp has.
@pytest.mark.parametrize("n_slots", [21, 22, 32, 64])
async def test_every_slot_decodes(n_slots: int) -> None:
    config = EngineConfig(
        model_path=DEMO_MODEL,
        n_slots=n_slots,
        n_ctx=64 * n_slots,
        kv_unified=True,
        cache_bytes_max=-1,
        n_threads=1,
        n_gpu_layers=0,
    )
    async with Engine(config) as engine:
        prompt = await engine.tokenize("Once upon a time")
        greedy = SamplingParams(temperature=0, ignore_eos=True)
        request = SequenceRequest(prompt=prompt, sampling=greedy, max_tokens=8)

        async def n_tokens() -> int:
            return sum([event.kind == EventKind.TOKEN async for event in engine.submit(request)])

        for _ in range(2):  # the second time prompts are kept
            assert await asyncio.gather(*(n_tokens() for _ in range(n_slots))) == [8] * n_slots
