"""LoRA adapters by request: what each computes with, which cells it may reuse, beside whom."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    SamplingParams,
    SequenceRequest,
    SlotFileError,
    TokenEvent,
)
from engine_ext.loading.model_options import ModelOptions
from tests.support.gguf_files import make_lora

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
SCALES = ((0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("lora")
    return [make_lora(folder / f"{seed}.gguf", seed, 0.3) for seed in (1, 2)]


@contextlib.asynccontextmanager
async def running_engine(
    adapters: Sequence[Path],
    scales: Sequence[float],
    *,
    n_slots: int = 1,
    cache_bytes_max: int = 0,
) -> AsyncIterator[Engine]:
    loras = tuple(zip(adapters, scales, strict=True))
    config = EngineConfig(
        model_path=DEMO_MODEL,
        options=ModelOptions(loras=loras),
        n_slots=n_slots,
        n_threads=1,
        cache_bytes_max=cache_bytes_max,
    )
    async with Engine(config) as engine:
        yield engine


async def events_of(
    engine: Engine, scales: tuple[float, ...] | None, text: str = "Once upon a time", n: int = 24
) -> list[TokenEvent]:
    request = SequenceRequest(
        prompt=await engine.tokenize(text), sampling=ENDLESS, max_tokens=n, lora_scales=scales
    )
    return [event async for event in engine.submit(request)]


def tokens_of(events: list[TokenEvent]) -> list[int]:
    return [event.token for event in events if event.kind == EventKind.TOKEN]


async def tokens_with_own_cells(
    engine: Engine, scales: tuple[float, ...], text: str = "Once upon a time"
) -> list[int]:
    """Of the second run, so that another one with the same cells rounds as this one did."""
    await events_of(engine, scales, text)
    return tokens_of(await events_of(engine, scales, text))


async def test_a_request_has_the_scales_that_it_names(adapters: list[Path]) -> None:
    expected = []
    for scales in SCALES:
        async with running_engine(adapters, scales) as engine:
            expected.append(tokens_of(await events_of(engine, None)))
    # Or the comparison would say nothing.
    assert len(set(map(tuple, expected))) == len(SCALES)
    async with running_engine(adapters, (0.5, 0.0)) as engine:
        for scales, tokens in [*zip(SCALES, expected, strict=True)][::-1]:
            assert tokens_of(await events_of(engine, scales)) == tokens
        assert tokens_of(await events_of(engine, None)) == expected[1]


async def test_requests_with_different_scales_run_at_once(adapters: list[Path]) -> None:
    async with running_engine(adapters, (0.0, 0.0), n_slots=5) as engine:
        alone = [tokens_of(await events_of(engine, scales, n=60)) for scales in SCALES]
        prompt = await engine.tokenize("Once upon a time")
        streams = [
            engine.submit(
                SequenceRequest(
                    prompt=prompt,
                    sampling=ENDLESS,
                    max_tokens=60,
                    lora_scales=scales,
                    cache_prompt=False,
                )
            )
            for scales in SCALES
        ]
        together = [[event async for event in stream] for stream in streams]
        assert {events[0].slot for events in together} == set(range(5))
        assert [tokens_of(events) for events in together] == alone


async def test_cells_of_other_scales_are_not_reused(adapters: list[Path]) -> None:
    async with running_engine(adapters, (0.0, 0.0)) as engine:
        for scales, is_reused in (
            ((1.0, 0.0), False),
            ((1.0, 0.0), True),
            ((0.0, 1.0), False),
            ((1.0, 0.0), False),
        ):
            started = (await events_of(engine, scales))[0]
            assert started.n_cached == (started.n_prompt - 1 if is_reused else 0)


async def test_a_request_takes_the_slot_with_its_scales(adapters: list[Path]) -> None:
    async with running_engine(adapters, (0.0, 0.0), n_slots=2) as engine:
        first = {scales: (await events_of(engine, scales))[0].slot for scales in SCALES[:2]}
        assert sorted(first.values()) == [0, 1]
        for scales, slot in [*first.items(), *first.items()]:
            started = (await events_of(engine, scales))[0]
            assert (started.slot, started.n_cached) == (slot, started.n_prompt - 1)


async def test_states_in_host_memory_keep_to_their_scales(adapters: list[Path]) -> None:
    text = "Once upon a time there was a fox who lived in the forest"
    async with running_engine(adapters, (0.0, 0.0), cache_bytes_max=1 << 28) as engine:
        with_first = await tokens_with_own_cells(engine, (1.0, 0.0), text)
        with_second = await tokens_with_own_cells(engine, (0.0, 1.0), text)
        assert with_first != with_second
        for scales, tokens in (((1.0, 0.0), with_first), ((0.0, 1.0), with_second)):
            events = await events_of(engine, scales, text)
            assert events[0].n_cached == events[0].n_prompt - 1
            assert tokens_of(events) == tokens
        # Of neither there are cells for these.
        assert (await events_of(engine, (0.5, 0.5), text))[0].n_cached == 0


async def test_a_saved_slot_keeps_to_its_scales(adapters: list[Path], tmp_path: Path) -> None:
    async with running_engine(adapters, (0.5, 0.0)) as engine:
        for scales in ((0.5, 0.0), (0.0, 1.0)):
            tokens = await tokens_with_own_cells(engine, scales)
            await engine.slots.save(0, tmp_path, "state")
            await engine.slots.erase(0)
            with pytest.raises(SlotFileError):
                await engine.slots.restore(0, tmp_path, "state", (1.0, 1.0))
            await engine.slots.restore(0, tmp_path, "state", scales)
            events = await events_of(engine, scales)
            assert events[0].n_cached == events[0].n_prompt - 1
            assert tokens_of(events) == tokens


@pytest.mark.parametrize("scales", [(), (1.0,), (1.0, 1.0, 1.0)])
async def test_a_scale_for_every_adapter(adapters: list[Path], scales: tuple[float, ...]) -> None:
    async with running_engine(adapters, (0.0, 0.0)) as engine:
        with pytest.raises(ValueError, match=r"^lora: "):
            await events_of(engine, scales)
