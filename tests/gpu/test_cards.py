"""Which card a model goes to, what the loop reports of it, and what several cards change.

Tests of two cards skip where there is one; a MIG slice is a card like any other.
"""

import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    ModelLoadError,
    ModelOptions,
    SamplingParams,
    SequenceRequest,
    list_devices,
)
from tests.gpu.test_device_loop import MODEL, has_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

N_CTX = 1024
SAMPLED = SamplingParams(seed=5, top_k=0, ignore_eos=True)
# As the tests do; prints the card's number. The first card is filled before.
ON_THE_EMPTIER_CARD = """
import asyncio, ctypes, sys
from pathlib import Path
from engine_ext import Engine, EngineConfig

runtime = ctypes.CDLL("libcudart.so.13")
assert runtime.cudaSetDevice(0) == 0
free, total, room = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
assert runtime.cudaMalloc(ctypes.byref(room), ctypes.c_size_t(free.value // 2)) == 0

async def main():
    config = EngineConfig(model_path=Path(sys.argv[1]), n_ctx=1024, n_threads=1)
    async with Engine(config) as engine:
        print(engine.decode_loop.loop, engine.decode_loop.card.index, engine.decode_loop.choice)

asyncio.run(main())
"""


def config_of(**options: Any) -> EngineConfig:
    return EngineConfig(model_path=MODEL, n_ctx=N_CTX, n_threads=1, options=ModelOptions(**options))


async def tokens_of(engine: Engine) -> list[int]:
    prompt = await engine.tokenize("Once upon a time there was")
    request = SequenceRequest(prompt=prompt, sampling=SAMPLED, max_tokens=100)
    return [e.token async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def tokens_on(**options: Any) -> tuple[list[int], int]:
    """The tokens, and the number of the card that made them."""
    async with Engine(config_of(**options)) as engine:
        assert engine.decode_loop.loop == "device", engine.decode_loop.reason
        assert engine.decode_loop.card is not None
        return await tokens_of(engine), engine.decode_loop.card.index


async def test_the_loop_reports_the_card_and_what_was_chosen_for_it() -> None:
    async with Engine(config_of()) as engine:
        card = engine.decode_loop.card
        assert card is not None, engine.decode_loop.reason
        print(asdict(card))
        assert engine.decode_loop.cards == [f"CUDA{card.index}"]
        assert engine.decode_loop.device == card.name
        assert card.built_for
        # What the loop is: clusters where the code has them, else a grid, else one block and why.
        has_clusters = float(card.code_from) >= 9.0
        assert card.draw_team in (("cluster", "block") if has_clusters else ("grid", "block"))
        assert (card.n_draw_blocks == 1) == (card.draw_team == "block")
        assert (card.draw_reason != "") == (card.draw_team == "block")
        assert card.programmatic_launches <= has_clusters


@pytest.fixture
def two_cards() -> None:
    """There are two at least."""
    if len(list_devices()) < 2:
        pytest.skip("fewer than two cards on this machine")


@pytest.mark.usefixtures("two_cards")
async def test_a_model_that_fits_one_card_goes_to_one() -> None:
    async with Engine(config_of()) as engine:
        assert engine.decode_loop.loop == "device", engine.decode_loop.reason
        assert len(engine.decode_loop.cards) == 1
        assert f"goes to {engine.decode_loop.cards[0]}, the emptiest" in engine.decode_loop.choice
        assert "-sm layer" in engine.decode_loop.choice


@pytest.mark.usefixtures("two_cards")
def test_it_goes_to_the_emptiest_card() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ON_THE_EMPTIER_CARD, str(MODEL)],
        env=os.environ,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    loop, index, choice = ended.stdout.split(maxsplit=2)
    assert (loop, choice.split(",")[0]) == ("device", f"the model goes to CUDA{index}")
    assert index != "0"


@pytest.mark.usefixtures("two_cards")
async def test_every_card_makes_the_same_tokens_however_it_is_chosen() -> None:
    first, index = await tokens_on(devices=("CUDA0",))
    assert index == 0
    assert await tokens_on(devices=("CUDA1",)) == (first, 1)
    assert await tokens_on(split_mode="none", main_gpu=1) == (first, 1)
    assert await tokens_on(split_mode="none", devices=("CUDA1", "CUDA0"), main_gpu=1) == (first, 0)


@pytest.mark.usefixtures("two_cards")
async def test_a_model_that_is_split_has_the_hosts_loop_and_says_so() -> None:
    single, _ = await tokens_on(devices=("CUDA0",))
    async with Engine(config_of(split_mode="layer")) as engine:
        assert engine.decode_loop.loop == "host"
        assert len(engine.decode_loop.cards) == len(list_devices())
        assert f"split between {len(list_devices())} cards" in engine.decode_loop.reason
        assert engine.decode_loop.choice == ""
        assert await tokens_of(engine) == single
    required = EngineConfig(
        model_path=MODEL,
        n_ctx=N_CTX,
        n_threads=1,
        options=ModelOptions(split_mode="layer"),
        require_device=True,
    )
    with pytest.raises(ModelLoadError, match="split between"):
        async with Engine(required):
            pass


@pytest.mark.usefixtures("two_cards")
async def test_a_model_that_needs_several_cards_is_split_and_says_why() -> None:
    # So much is to be left free that no card has room for the model.
    most = max(device.total_bytes for device in list_devices())
    config = EngineConfig(
        model_path=MODEL, n_ctx=N_CTX, n_threads=1, fit_margins=(most,), n_gpu_layers=-2
    )
    async with Engine(config) as engine:
        assert engine.decode_loop.loop == "host"
        assert len(engine.decode_loop.cards) == len(list_devices())
        assert "the model is split between" in engine.decode_loop.choice
        assert "free, and the model takes" in engine.decode_loop.choice
