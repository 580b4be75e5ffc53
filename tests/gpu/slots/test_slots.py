"""The GPU's decode loop beside other slots' cells: one KV cache for all, and what is saved."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from engine_ext import EventKind, SamplingParams, SequenceRequest
from tests.gpu.test_device_loop import GREEDY, Loop, events_of, has_device, running_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

TEXTS = ("Once upon a time", "The little fox", "In a village", "One day a boy")
SAMPLED = SamplingParams(seed=3, repeat_penalty=1.1, ignore_eos=True)


async def turns_in_a_shared_cache(loop: Loop) -> list[object]:
    """Conversations that take turns, so that their cells lie between each other's; and leave."""
    # Room for all of them: where the host must make room first, it makes that step too.
    async with running_engine(loop, n_slots=4, n_ctx=4096, kv_unified=True) as engine:
        texts = [await engine.tokenize(text) for text in TEXTS]
        log: list[object] = []
        for turn in range(5):
            for slot, text in enumerate(texts):
                if turn == 3 and slot == 1:
                    # A new, shorter conversation: cells in the middle are free again.
                    texts[slot] = text = await engine.tokenize("Mia and")
                request = SequenceRequest(
                    prompt=text,
                    sampling=(GREEDY, SAMPLED)[turn % 2],
                    max_tokens=(60, 130, 40, 90)[slot],
                    id_slot=slot,
                )
                events = await events_of(engine, request)
                tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
                log.append((events[0].n_cached, tokens, events[-1].n_cells))
                texts[slot] = text + tokens + [turn + 3]
        if loop != "host":
            n_tokens = engine.stats().n_tokens_decoded
            assert engine.stats().n_tokens_device == n_tokens - len(log)
        return log


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_slots_share_one_cache(loop: Loop) -> None:
    assert await turns_in_a_shared_cache(loop) == await turns_in_a_shared_cache("host")


async def saved_and_restored(loop: Loop, folder: Path, **options: Any) -> tuple[bytes, object]:
    async with running_engine(loop, n_slots=2, **options) as engine:
        prompt = await engine.tokenize(TEXTS[0])
        request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=300, id_slot=0)
        events = await events_of(engine, request)
        tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
        await engine.slots.save(0, folder, loop)
        await engine.slots.erase(0)
        await engine.slots.restore(1, folder, loop)
        again = SequenceRequest(
            prompt=prompt + tokens + [7], sampling=GREEDY, max_tokens=40, id_slot=1
        )
        events = await events_of(engine, again)
        tail = [event.token for event in events if event.kind == EventKind.TOKEN]
        return (folder / loop).read_bytes(), (events[0].n_cached, tokens, tail)


# As a whole, and part by part: the GPU's rows, the host's states as llama.h writes them.
@pytest.mark.parametrize("options", [{}, {"kv_unified": True, "cache_bytes_max": -1}])
async def test_a_saved_slot_is_the_hosts(options: dict[str, object], tmp_path: Path) -> None:
    loops: tuple[Loop, ...] = ("host", "device", "ahead")
    results = {loop: await saved_and_restored(loop, tmp_path, **options) for loop in loops}
    assert results["device"][1] == results["host"][1]
    assert results["ahead"][1] == results["host"][1]
    # Every byte of the KV that the GPU filled, and llama.cpp's books of it.
    assert results["device"][0] == results["host"][0]
    assert results["ahead"][0] == results["host"][0]


async def stream_beside_actions(loop: Loop, folder: Path) -> bytes:
    """What a slot holds that is saved and restored time and again while another one decodes."""
    async with running_engine(
        loop,
        n_slots=3,
        n_ctx=4096,
        kv_unified=True,
        cache_bytes_max=-1,
        cache_idle_slots=False,
    ) as engine:
        text = (await engine.tokenize(" ".join(TEXTS)))[:20] * 40
        await events_of(
            engine, SequenceRequest(prompt=text, sampling=GREEDY, max_tokens=1, id_slot=0)
        )
        prompt = await engine.tokenize(TEXTS[3])
        request = SequenceRequest(prompt=prompt, sampling=SAMPLED, max_tokens=900, id_slot=1)
        stream = asyncio.create_task(events_of(engine, request))
        for i in itertools.count():
            if i > 0 and stream.done():
                break
            await engine.slots.save(0, folder, loop)
            await engine.slots.erase(0)
            await engine.slots.restore(0, folder, loop)
        # A part is a kernel and a copy of 2 MiB at most.
        assert loop == "host" or engine.stats().cache_turn_us_max < 50_000
        assert (await stream)[-1].n_decoded == 900
        again = SequenceRequest(prompt=text, sampling=GREEDY, max_tokens=1, id_slot=0)
        assert (await events_of(engine, again))[0].n_cached == len(text) - 1
        return (folder / loop).read_bytes()


async def test_a_stream_goes_on_beside_slot_actions(tmp_path: Path) -> None:
    state = await stream_beside_actions("host", tmp_path)
    assert await stream_beside_actions("device", tmp_path) == state


async def kept_and_brought_back(
    loop: Loop, folder: Path, *, is_at_once: bool
) -> tuple[bytes, bytes]:
    """The slot's state before another prompt took it over, and after it came back.

    is_at_once: before its copy has begun, or while it is under way. The prompts share their first
    token.
    """
    async with running_engine(loop, n_ctx=4096, cache_bytes_max=-1) as engine:
        # All within the first window of cells: every step has the same shape.
        first = await engine.tokenize(TEXTS[0])
        request = SequenceRequest(prompt=first, sampling=GREEDY, max_tokens=60)
        events = await events_of(engine, request)
        tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
        await engine.slots.save(0, folder, "before")
        other = await engine.tokenize(TEXTS[1])
        again = [*first, *tokens[:-1]]
        requests = [
            SequenceRequest(prompt=other, sampling=GREEDY, max_tokens=1 if is_at_once else 60),
            SequenceRequest(prompt=again, sampling=GREEDY, max_tokens=0),
        ]
        if is_at_once:
            both = await asyncio.gather(*(events_of(engine, request) for request in requests))
        else:
            both = [await events_of(engine, request) for request in requests]
        assert both[0][0].n_cached == 1
        events = both[1]
        assert events[0].n_cached == len(again) - 1
        await engine.slots.save(0, folder, "after")
        assert engine.stats().n_cache_states == 1
        assert engine.stats().cache_us > 0
        assert engine.stats().n_cache_lost == 0
    return (folder / "before").read_bytes(), (folder / "after").read_bytes()


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("loop", ["host", "device"])
async def test_a_prompt_comes_back_as_it_was(loop: Loop, is_at_once: bool, tmp_path: Path) -> None:
    before, after = await kept_and_brought_back(loop, tmp_path, is_at_once=is_at_once)
    assert after == before


async def test_states_of_slots_that_decoded_side_by_side_come_back() -> None:
    async with running_engine(
        "device", n_slots=4, n_ctx=8192, kv_unified=True, cache_bytes_max=-1
    ) as engine:
        texts = [await engine.tokenize(text) for text in TEXTS]
        requests = [SequenceRequest(prompt=text, sampling=GREEDY, max_tokens=200) for text in texts]
        together = await asyncio.gather(*(events_of(engine, request) for request in requests))
        for text, events in zip(texts, together, strict=True):
            tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
            grown = [*text, *tokens]
            events = await events_of(
                engine, SequenceRequest(prompt=grown, sampling=GREEDY, max_tokens=2)
            )
            assert events[0].n_cached == len(grown) - 1
        assert engine.stats().n_cache_lost == 0
        # A part is a kernel and a copy of 2 MiB at most; a call for each run of cells were more.
        assert engine.stats().cache_turn_us_max < 50_000


async def test_what_idle_slots_hold_is_copied_before_it_is_displaced() -> None:
    async with running_engine(
        "device", n_slots=4, n_ctx=8192, kv_unified=True, cache_bytes_max=-1
    ) as engine:
        texts = [await engine.tokenize(text) for text in TEXTS]
        requests = [SequenceRequest(prompt=text, sampling=GREEDY, max_tokens=200) for text in texts]
        crowd = await asyncio.gather(*(events_of(engine, request) for request in requests))
        assert engine.stats().n_cache_states == 0
        n_early, n_times = 0, 0
        while n_early == 0 or n_times < 5:  # a busy machine has pauses between copies
            now = engine.stats().n_cache_early_bytes
            n_early, n_times = now, n_times + 1 if now == n_early else 0
            await asyncio.sleep(0.2)
        newcomer = await engine.tokenize("Mia and her brother")
        alone = SequenceRequest(prompt=newcomer, sampling=GREEDY, max_tokens=100)
        await events_of(engine, alone)
        # All that is kept was there before: not a byte has been copied for it.
        assert engine.stats().n_cache_states == 4
        assert engine.stats().n_cache_bytes == n_early
        for text, events in zip(texts, crowd, strict=True):
            tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
            grown = [*text, *tokens]
            before = engine.stats().n_cache_computed
            again = SequenceRequest(prompt=grown, sampling=GREEDY, max_tokens=2)
            n_cached = (await events_of(engine, again))[0].n_cached
            # Where copies were slow, on a busy machine, computing may be known to be quicker.
            if engine.stats().n_cache_computed == before:
                assert n_cached == len(grown) - 1, f"{engine.stats()}"
        stats = engine.stats()
        assert stats.n_cache_copied + stats.n_cache_computed == len(texts), f"{stats}"
        assert stats.n_cache_lost == 0
