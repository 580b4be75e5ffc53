"""A step's phases by kernels of ours: ggml's bits, phase by phase, in whole steps and in texts."""

from pathlib import Path

import pytest

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest, StepKernels
from tests.gpu.random_model import ARCHITECTURES, write_random_model
from tests.gpu.test_device_loop import has_device
from tests.support.device.gpu_program import needs_gpu_programs, run_gpu_program

SERVED = [name for name in ARCHITECTURES if name not in ("gemma2", "mamba")]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]


@needs_gpu_programs
@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
@pytest.mark.parametrize("architecture", [*SERVED, "phi3"])
def test_phases_have_the_bits_of_ggml(architecture: str, cache_type: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    run_gpu_program("step_phases_test", model, cache_type)


@needs_gpu_programs
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen3moe", "gemma"])
def test_the_logits_of_many_steps_are_those_of_llama_decode(
    architecture: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    run_gpu_program("many_steps_test", model, "2000", "1300")


async def tokens_of(model: Path, kernels: StepKernels) -> list[list[int]]:
    config = EngineConfig(
        model_path=model, n_ctx=1024, n_threads=1, require_device=True, kernels=kernels
    )
    texts = []
    async with Engine(config) as engine:
        own = [told for told in engine.decode_loop.phases if told["kernels"] == "own"]
        assert bool(own) == (kernels == "own")
        for sampling in (SamplingParams(temperature=0, ignore_eos=True), SamplingParams(seed=5)):
            request = SequenceRequest(
                prompt=[1, *range(300, 340)], sampling=sampling, max_tokens=600, cache_prompt=False
            )
            texts.append(
                [e.token async for e in engine.submit(request) if e.kind == EventKind.TOKEN]
            )
    return texts


@pytest.mark.parametrize("architecture", SERVED)
async def test_texts_are_the_same_whoever_computes_them(architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    assert await tokens_of(model, "own") == await tokens_of(model, "ggml")
