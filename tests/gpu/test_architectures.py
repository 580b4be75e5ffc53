"""The GPU's decode loop on several architectures, KV types and context lengths: the host's tokens,
or a refusal that says why."""

import os
import subprocess
import sys
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
)
from engine_ext.loading.config import CacheType
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
Loop = Literal["host", "ahead", "device"]
WITH_THE_LOOP = """
import asyncio, sys
from pathlib import Path
from engine_ext import Engine, EngineConfig

async def main():
    path = Path(sys.argv[1])
    async with Engine(EngineConfig(model_path=path, n_ctx=1024, n_threads=1, require_device=True)):
        pass

asyncio.run(main())
"""
REFUSALS = {"gemma2": "sliding window", "mamba": "recurrent"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each architecture."""
    folder = tmp_path_factory.mktemp("models")
    paths = {name: folder / f"{name}.gguf" for name in ARCHITECTURES}
    for name, path in paths.items():
        write_random_model(path, name)
    return paths


async def tokens_of(engine: Engine, sampling: SamplingParams, n: int) -> list[int]:
    request = SequenceRequest(
        prompt=[1, *range(300, 340)], sampling=sampling, max_tokens=n, cache_prompt=False
    )
    return [e.token async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def compare(
    model: Path, n_tokens: int, n_ctx: int, cache_type: CacheType = "f16", refusal: str = ""
) -> None:
    async def made(asked: Literal["host", "auto"]) -> list[list[int]]:
        config = EngineConfig(
            model_path=model,
            n_ctx=n_ctx,
            n_threads=1,
            decode_loop=asked,
            cache_type_k=cache_type,
            cache_type_v=cache_type,
        )
        async with Engine(config) as engine:
            if asked == "auto":
                found = engine.decode_loop
                assert found.loop == ("host" if refusal else "device"), found.reason
                assert refusal in found.reason
            tokens = [await tokens_of(engine, sampling, n_tokens) for sampling in (GREEDY, SAMPLED)]
            counts = [len(each) for each in tokens]
            assert counts == [n_tokens, n_tokens], f"{asked}: {counts} tokens, {engine.stats()}"
            return tokens

    expected, found = await made("host"), await made("auto")
    if found != expected:
        # Whether a loop is not the same twice, and which of them.
        again = {"host": await made("host"), "auto": await made("auto")}
        pytest.fail(
            f"{first_difference(expected, found)}; "
            f"host and host again: {first_difference(expected, again['host'])}; "
            f"auto and auto again: {first_difference(found, again['auto'])}"
        )


def first_difference(expected: list[list[int]], found: list[list[int]]) -> str:
    """Of the greedy tokens, then of the sampled ones."""
    for name, ours, theirs in zip(("greedy", "sampled"), expected, found, strict=True):
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            if pair[0] != pair[1]:
                return f"{name} token {i} is {pair[1]}, not {pair[0]}"
    return "the same"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_architecture(models: dict[str, Path], architecture: str) -> None:
    await compare(models[architecture], 600, 1024, refusal=REFUSALS.get(architecture, ""))


async def test_a_quantised_cache(models: dict[str, Path]) -> None:
    await compare(models["llama"], 600, 1024, cache_type="q8_0")


async def test_ten_thousand_tokens_across_many_windows(models: dict[str, Path]) -> None:
    await compare(models["llama"], 10_000, 10_496)


async def test_a_context_of_thirty_two_thousand_tokens(models: dict[str, Path]) -> None:
    results = {}
    prompt = [1, *(300 + i * 7 % 3000 for i in range(32_400))]
    loops: tuple[Loop, ...] = ("host", "device")
    for loop in loops:
        config = EngineConfig(
            model_path=models["llama"], n_ctx=32_768, n_threads=1, decode_loop=loop
        )
        async with Engine(config) as engine:
            # Up to the end of the context.
            events = [
                e async for e in engine.submit(SequenceRequest(prompt=prompt, sampling=GREEDY))
            ]
            results[loop] = [e.token for e in events if e.kind == EventKind.TOKEN]
            assert FinishReason(events[-1].finish_reason) is FinishReason.CONTEXT_LIMIT
    assert len(results["host"]) == 32_768 - len(prompt)
    assert results["device"] == results["host"]


async def test_partial_offload_falls_back_and_names_what_is_elsewhere(
    models: dict[str, Path],
) -> None:
    config = EngineConfig(model_path=models["llama"], n_ctx=1024, n_threads=1, n_gpu_layers=2)
    async with Engine(config) as engine:
        assert engine.decode_loop.loop == "host"
        assert "blk.0." in engine.decode_loop.reason
        assert engine.decode_loop.n_elsewhere > 0
        assert any(name.startswith("blk.0.") for name in engine.decode_loop.elsewhere)
        card, cpu = sorted(engine.decode_loop.n_graph_nodes, reverse=True)
        assert card.startswith("CUDA") and cpu == "CPU"
        assert len(await tokens_of(engine, SAMPLED, 20)) == 20
    required = EngineConfig(
        model_path=models["llama"], n_ctx=1024, n_threads=1, n_gpu_layers=2, require_device=True
    )
    with pytest.raises(ModelLoadError, match=r"not on the GPU: blk\.0\."):
        async with Engine(required):
            pass


def test_reordered_graphs_are_refused(models: dict[str, Path]) -> None:
    # In a process of its own: ggml remembers what it read there for as long as a process lives.
    ended = subprocess.run(
        [sys.executable, "-c", WITH_THE_LOOP, str(models["llama"])],
        env={**os.environ, "GGML_CUDA_GRAPH_OPT": "1"},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ended.returncode != 0
    last = ended.stderr.rstrip().splitlines()[-1]
    assert "ModelLoadError" in last
    assert "GGML_CUDA_GRAPH_OPT" in last


async def loads(config: EngineConfig) -> bool:
    """False where the start's own test meets the token whose row is not finite."""
    try:
        async with Engine(config):
            return True
    except ModelLoadError as error:
        assert "no finite logit" in str(error)
        return False


async def test_logits_that_are_not_finite_end_the_request_within_the_loop(
    models: dict[str, Path], tmp_path: Path
) -> None:
    config = EngineConfig(model_path=models["llama"], n_ctx=1024, n_threads=1)
    async with Engine(config) as engine:
        tokens = await tokens_of(engine, SAMPLED, 60)
    path = tmp_path / "nan.gguf"
    # Drawn, not greedy: what a greedy text repeats, and from where on, hangs on the card's code.
    for at in (i for i in range(20, 60) if tokens[i] not in tokens[:i] and tokens[i] > 400):
        write_random_model(path, "llama", nan_token=tokens[at])
        config = EngineConfig(model_path=path, n_ctx=1024, n_threads=1, decode_loop="device")
        if await loads(config):
            break
    else:
        pytest.fail("the start's test meets all of them")
    loops: tuple[Loop, ...] = ("host", "ahead", "device")
    for loop in loops:
        config = EngineConfig(model_path=path, n_ctx=1024, n_threads=1, decode_loop=loop)
        async with Engine(config) as engine:
            request = SequenceRequest(prompt=[1, *range(300, 340)], sampling=SAMPLED, max_tokens=60)
            for _ in range(2):  # the first one's cells are gone
                events = [e async for e in engine.submit(request)]
                assert FinishReason(events[-1].finish_reason) is FinishReason.NON_FINITE
                found = [e.token for e in events if e.kind == EventKind.TOKEN]
                assert found == tokens[: at + 1]
            # The slot serves what does not meet that token.
            assert await tokens_of(engine, SAMPLED, at) == tokens[:at]
