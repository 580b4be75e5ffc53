"""The GPU's decode loop on several architectures, KV types and context lengths: the host's tokens,
or a refusal that says why."""

from pathlib import Path

import pytest

from engine_ext import Engine, EngineConfig, EventKind, Request, SamplingParams
from engine_ext.config import CacheType
from tests.gpu.random_model import ARCHITECTURES, write_random_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(
        not Path("/dev/nvidiactl").exists(), reason="no NVIDIA device on this machine"
    ),
]

GREEDY = SamplingParams(temperature=0, ignore_eos=True)
SAMPLED = SamplingParams(seed=5, ignore_eos=True)
REFUSALS = {"gemma2": "sliding window"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each architecture."""
    folder = tmp_path_factory.mktemp("models")
    paths = {name: folder / f"{name}.gguf" for name in ARCHITECTURES}
    for name, path in paths.items():
        write_random_model(path, name)
    return paths


async def tokens_of(engine: Engine, sampling: SamplingParams, n: int) -> list[int]:
    request = Request(
        prompt=[1, *range(300, 340)], sampling=sampling, max_tokens=n, cache_prompt=False
    )
    return [e.token async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def compare(
    model: Path, n_tokens: int, n_ctx: int, cache_type: CacheType = "f16", refusal: str = ""
) -> None:
    results = {}
    for asked in ("host", "auto"):
        config = EngineConfig(
            model_path=model,
            n_ctx=n_ctx,
            n_threads=1,
            decode_loop="host" if asked == "host" else "auto",
            cache_type_k=cache_type,
            cache_type_v=cache_type,
        )
        async with Engine(config) as engine:
            if asked == "auto":
                assert engine.decode_loop.loop == ("host" if refusal else "device")
                assert refusal in engine.decode_loop.reason
            results[asked] = [
                await tokens_of(engine, sampling, n_tokens) for sampling in (GREEDY, SAMPLED)
            ]
            assert all(len(tokens) == n_tokens for tokens in results[asked])
    assert results["auto"] == results["host"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_architecture(models: dict[str, Path], architecture: str) -> None:
    await compare(models[architecture], 600, 1024, refusal=REFUSALS.get(architecture, ""))


async def test_a_quantised_cache(models: dict[str, Path]) -> None:
    await compare(models["llama"], 600, 1024, cache_type="q8_0")


async def test_ten_thousand_tokens_across_many_windows(models: dict[str, Path]) -> None:
    await compare(models["llama"], 10_000, 10_496)
