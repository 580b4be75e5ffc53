"""The real engine on the demo model: what the Python face promises."""

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine_ext import (
    Engine,
    EngineBusy,
    EngineConfig,
    EngineError,
    EngineState,
    EventKind,
    FinishReason,
    ModelLoadError,
    SamplingParams,
    SequenceRequest,
    TokenEvent,
    TokenStream,
)
from tests.support.ties import assert_equal_up_to_a_tie

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
GREEDY = SamplingParams(temperature=0)
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)


@contextlib.asynccontextmanager
async def running_engine(
    model_path: Path = DEMO_MODEL,
    *,
    n_slots: int = 1,
    n_waiting_max: int = 8,
    n_ubatch: int = 512,
    n_ctx: int = 0,
    pin: bool = True,
    decode_core: int | None = None,
    wake_interval_us: int = 1500,
    n_gpu_layers: int = -1,
    context_shift: bool = False,
) -> AsyncIterator[Engine]:
    config = EngineConfig(
        model_path=model_path,
        n_slots=n_slots,
        n_waiting_max=n_waiting_max,
        n_ubatch=n_ubatch,
        n_ctx=n_ctx,
        n_threads=1,
        pin=pin,
        decode_core=decode_core,
        wake_interval_us=wake_interval_us,
        n_gpu_layers=n_gpu_layers,
        context_shift=context_shift,
    )
    async with Engine(config) as engine:
        yield engine


async def collect(stream: TokenStream) -> list[TokenEvent]:
    return [event async for event in stream]


def tokens_of(events: list[TokenEvent]) -> list[int]:
    return [event.token for event in events if event.kind == EventKind.TOKEN]


async def generate(engine: Engine, request: SequenceRequest) -> tuple[list[int], FinishReason]:
    events = await collect(engine.submit(request))
    return tokens_of(events), FinishReason(events[-1].finish_reason)


async def probabilities(engine: Engine, request: SequenceRequest) -> list[dict[str, Any]]:
    """Its tokens as /completion lists them under `completion_probabilities`."""
    return [
        {
            "id": event.token,
            "logprob": event.logprob,
            "top_logprobs": [{"id": t, "logprob": p} for t, p in event.top_logprobs],
        }
        for event in await collect(engine.submit(request))
        if event.kind == EventKind.TOKEN
    ]


async def test_events_of_a_request_are_complete_and_in_order() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        events = await collect(
            engine.submit(SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=20))
        )
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.kind for event in events]
        assert kinds == [
            EventKind.STARTED,
            EventKind.PREFILL,
            *[EventKind.TOKEN] * 20,
            EventKind.FINISHED,
        ]
        assert events[0].n_prompt == len(prompt)
        assert [event.n_decoded for event in events[2:22]] == list(range(1, 21))
        assert FinishReason(events[-1].finish_reason) is FinishReason.TOKEN_LIMIT
        # The last token was never an input, so it has no cell.
        assert events[-1].n_cells == len(prompt) + 19
        assert all(a.t_us <= b.t_us for a, b in itertools.pairwise(events))


async def test_a_listener_sees_what_a_reader_sees() -> None:
    async with running_engine() as engine:
        request = SequenceRequest(prompt=[1], sampling=ENDLESS, max_tokens=50, cache_prompt=False)
        expected = tokens_of(await collect(engine.submit(request)))
        stream = engine.submit(request)
        events: list[TokenEvent] = []
        finished = asyncio.Event()

        def listen() -> None:
            events.extend(stream.take())
            if events[-1].kind == EventKind.FINISHED:
                finished.set()

        stream.listen(listen)
        await finished.wait()
        assert tokens_of(events) == expected
        stream.listen(None)
        assert await stream.read() == []


async def test_a_story_ends_with_eos() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        tokens, reason = await generate(engine, SequenceRequest(prompt=prompt, sampling=GREEDY))
        assert reason is FinishReason.EOS
        assert tokens[-1] in engine.model.eog_tokens


async def test_the_same_seed_gives_the_same_tokens() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        request = SequenceRequest(
            prompt=prompt, sampling=SamplingParams(seed=7), max_tokens=40, cache_prompt=False
        )
        first = await generate(engine, request)
        for _ in range(5):
            assert await generate(engine, request) == first
        other = SequenceRequest(prompt=prompt, sampling=SamplingParams(seed=8), max_tokens=40)
        assert await generate(engine, other) != first


async def test_a_reused_prefix_changes_neither_tokens_nor_counts() -> None:
    async with running_engine(n_ubatch=1) as engine:  # the last token is computed alone both times
        prompt = await engine.tokenize("Once upon a time there was a dog who lived near a hill.")
        request = SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=30)
        cold = await collect(engine.submit(request))
        warm = await collect(engine.submit(request))
        assert cold[0].n_cached == 0
        assert warm[0].n_cached == len(prompt) - 1
        assert tokens_of(warm) == tokens_of(cold)


async def test_the_context_limit_ends_the_request() -> None:
    async with running_engine(n_ctx=256) as engine:
        prompt = await engine.tokenize("Once upon a time")
        events = await collect(engine.submit(SequenceRequest(prompt=prompt, sampling=ENDLESS)))
        assert FinishReason(events[-1].finish_reason) is FinishReason.CONTEXT_LIMIT
        assert events[-1].n_cells + 1 == engine.model.n_ctx


async def test_cancel_ends_decoding_within_a_step() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once")
        stream = engine.submit(SequenceRequest(prompt=prompt, sampling=ENDLESS))
        n_seen = 0
        events: list[TokenEvent] = []
        while batch := await stream.read():
            events += batch
            n_seen = len(tokens_of(events))
            if n_seen >= 5:
                stream.cancel()
                stream.cancel()
                n_steps = engine.stats().n_steps
                break
        events += await collect(stream)
        assert FinishReason(events[-1].finish_reason) is FinishReason.CANCELLED
        # A step may have been under way when the command was written.
        assert engine.stats().n_steps <= n_steps + 2
        assert (
            await generate(engine, SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=3))
        )[1] is (FinishReason.TOKEN_LIMIT)


async def test_cancel_ends_prefill_between_chunks() -> None:
    async with running_engine(n_ubatch=16) as engine:
        prompt = (await engine.tokenize("Once upon a time " * 200))[: engine.model.n_ctx - 2]
        request = SequenceRequest(prompt=prompt, sampling=ENDLESS, cache_prompt=False)
        for _ in range(20):  # this thread may not run for as long as a prefill takes
            stream = engine.submit(request)
            events = await stream.read()
            stream.cancel()
            events += await collect(stream)
            if not tokens_of(events):
                break
        assert FinishReason(events[-1].finish_reason) is FinishReason.CANCELLED
        assert events[-1].n_cells < len(prompt)
        assert not tokens_of(events)


async def test_cancel_of_a_waiting_request_leaves_the_running_one_alone() -> None:
    async with running_engine(context_shift=True) as engine:
        prompt = await engine.tokenize("Once upon a time")
        request = SequenceRequest(
            prompt=prompt, sampling=ENDLESS, max_tokens=200, cache_prompt=False
        )
        alone, _ = await generate(engine, request)
        # One that ends by itself could do so before the others are cancelled.
        running = engine.submit(
            SequenceRequest(prompt=prompt, sampling=ENDLESS, cache_prompt=False)
        )
        waiting = [engine.submit(request) for _ in range(5)]
        for stream in waiting:
            stream.cancel()
        for stream in waiting:
            events = await collect(stream)
            assert [event.kind for event in events] == [EventKind.FINISHED]
            assert FinishReason(events[0].finish_reason) is FinishReason.CANCELLED
        tokens: list[int] = []
        while len(tokens) < len(alone):
            tokens += tokens_of(await running.read())
        assert tokens[: len(alone)] == alone
        running.cancel()
        await collect(running)


async def test_slots_decode_together_and_each_gets_its_own_tokens() -> None:
    # On the CPU: a GPU's kernels differ by more.
    async with running_engine(n_slots=4, n_ctx=2048, n_gpu_layers=0) as engine:
        texts = ["Once upon a time", "The little fox", "In a village", "One day", "Mia", "A boy"]
        prompts = [await engine.tokenize(text) for text in texts]
        requests = [
            SequenceRequest(
                prompt=p, sampling=ENDLESS, max_tokens=50, n_probs=2, cache_prompt=False
            )
            for p in prompts
        ]
        alone = [await probabilities(engine, request) for request in requests]
        n_steps: list[int] = []
        for _ in range(5):  # this thread may not run for as long as a request takes
            n_before = engine.stats().n_steps
            together = await asyncio.gather(*(probabilities(engine, r) for r in requests))
            for beside, expected in zip(together, alone, strict=True):
                assert len(beside) == 50
                assert_equal_up_to_a_tie(expected, beside)
            n_steps.append(engine.stats().n_steps - n_before)
        # Six requests of some fifty steps each in four slots.
        assert min(n_steps) < 3 * 55


async def test_waiting_requests_are_served_in_order() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once")
        streams = [
            engine.submit(SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=5))
            for _ in range(6)
        ]
        starts = [(await collect(stream))[0].t_us for stream in streams]
        assert starts == sorted(starts)


async def test_too_many_requests_are_refused_and_the_others_finish() -> None:
    async with running_engine(n_waiting_max=2, context_shift=True) as engine:
        prompt = await engine.tokenize("Once")
        request = SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=20)
        endless = engine.submit(SequenceRequest(prompt=prompt, sampling=ENDLESS))
        streams = [engine.submit(request) for _ in range(2)]
        with pytest.raises(EngineBusy):
            engine.submit(request)
        endless.cancel()
        await collect(endless)
        for stream in streams:
            assert len(tokens_of(await collect(stream))) == 20
        assert len((await generate(engine, request))[0]) == 20


@pytest.mark.parametrize("prompt", [[], [-1], [10**6], [2**31 - 1]])
async def test_prompts_the_native_side_must_not_see_are_refused(prompt: list[int]) -> None:
    async with running_engine() as engine:
        with pytest.raises(ValueError, match=r"^prompt: "):
            engine.submit(SequenceRequest(prompt=prompt))
        assert (await generate(engine, SequenceRequest(prompt=[1], max_tokens=1)))[0]


async def test_a_prompt_as_long_as_the_context_is_refused() -> None:
    async with running_engine(n_ctx=256) as engine:
        n_ctx = engine.model.n_ctx
        with pytest.raises(ValueError, match=r"^prompt: "):
            engine.submit(SequenceRequest(prompt=[1] * n_ctx))
        tokens, reason = await generate(
            engine, SequenceRequest(prompt=[1] * (n_ctx - 1), sampling=ENDLESS)
        )
        assert len(tokens) == 1
        assert reason is FinishReason.CONTEXT_LIMIT


async def test_logit_bias_out_of_range_is_refused() -> None:
    async with running_engine() as engine:
        sampling = SamplingParams(logit_bias=((engine.model.n_vocab, 1.0),))
        with pytest.raises(ValueError, match=r"^logit_bias: "):
            engine.submit(SequenceRequest(prompt=[1], sampling=sampling))


async def test_infill_takes_the_likely_token_or_the_end() -> None:
    async with running_engine() as engine:
        sampling = SamplingParams(samplers=("top_k", "infill"), seed=1)
        await engine.compile_sampling(sampling)
        prompt = await engine.tokenize("Once upon a")
        tokens = [
            event.token
            async for event in engine.submit(
                SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=20)
            )
            if event.kind == EventKind.TOKEN
        ]
        # Unlike without the link nothing unlikely is drawn: the text is as the model has learned.
        assert engine.token_pieces[tokens[0]].startswith(b" time")
        assert len(tokens) == 20 or tokens[-1] in engine.model.eog_tokens


async def test_every_token_banned_is_an_error_and_the_engine_lives() -> None:
    async with running_engine() as engine:
        ban = tuple((token, float("-inf")) for token in range(engine.model.n_vocab))
        tokens, reason = await generate(
            engine, SequenceRequest(prompt=[1], sampling=SamplingParams(logit_bias=ban))
        )
        assert tokens == []
        assert reason is FinishReason.NON_FINITE
        assert engine.stats().n_requests_failed == 1
        assert (await generate(engine, SequenceRequest(prompt=[1], max_tokens=2)))[0]


async def test_logprobs_are_a_log_softmax_with_the_best_first() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a")
        n_vocab = engine.model.n_vocab
        request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=3, n_probs=n_vocab)
        events = [e for e in await collect(engine.submit(request)) if e.kind == EventKind.TOKEN]
        for event in events:
            best = event.top_logprobs
            assert len(best) == n_vocab
            assert best[0] == (event.token, event.logprob)
            assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
            assert sum(2.718281828459045**p for _, p in best) == pytest.approx(1.0, abs=1e-4)


async def test_prompt_logprobs_are_those_of_decoding_the_same_tokens() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time there was")
        request = SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=100, n_probs=1)
        events = [e for e in await collect(engine.submit(request)) if e.kind == EventKind.TOKEN]
        full = prompt + [event.token for event in events]
        evaluation = SequenceRequest(prompt=full, max_tokens=0, n_probs=2, prompt_logprobs=True)
        scored = await collect(engine.submit(evaluation))
        of_prompt = [event for event in scored if event.kind == EventKind.PROMPT_LOGPROB]
        assert [event.n_decoded for event in of_prompt] == list(range(1, len(full)))
        assert [event.token for event in of_prompt] == full[1:]
        assert not tokens_of(scored)
        assert all(len(event.top_logprobs) == 2 for event in of_prompt)
        pairs = zip(events, of_prompt[len(prompt) - 1 :], strict=True)
        differences = [abs(decoded.logprob - event.logprob) for decoded, event in pairs]
        # llama.cpp computes a chunk and a single token with different kernels, in float16 and int8.
        assert max(differences) < 0.1
        assert sum(differences) / len(differences) < 0.01


async def test_an_unknown_file_is_named() -> None:
    with pytest.raises(ModelLoadError, match=r"cannot load model .*nowhere\.gguf: no such file"):
        async with running_engine(Path("nowhere.gguf")):
            pass


@pytest.mark.parametrize("n_bytes", [0, 3, 64, 20_000, 1_000_000])
async def test_a_truncated_file_is_named(tmp_path: Path, n_bytes: int) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(DEMO_MODEL.read_bytes()[:n_bytes])
    with pytest.raises(ModelLoadError, match=r"cannot load model .*broken\.gguf: "):
        async with running_engine(broken):
            pass


async def test_stop_ends_running_and_waiting_requests() -> None:
    async with running_engine() as engine:
        streams = [engine.submit(SequenceRequest(prompt=[1], sampling=ENDLESS)) for _ in range(3)]
        await streams[0].read()
        await engine.stop()
        for stream in streams:
            events = await collect(stream)
            assert FinishReason(events[-1].finish_reason) is FinishReason.STOPPED
        assert engine.state is EngineState.STOPPED
        with pytest.raises(EngineError):
            engine.submit(SequenceRequest(prompt=[1]))
        with pytest.raises(EngineError):
            await engine.tokenize("text")


async def test_the_decode_thread_has_its_own_core_and_the_front_end_stays_off_it() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        async with running_engine() as engine:
            assert not engine.placement.is_pinned
        return
    before = {int(entry) for entry in os.listdir("/proc/self/task")}
    async with running_engine() as engine:
        (decode_core,) = engine.placement.decode_cores
        assert decode_core == max(allowed)
        assert os.sched_getaffinity(0) == allowed - {decode_core}
        born = {int(entry) for entry in os.listdir("/proc/self/task")} - before
        pinned = [tid for tid in born if os.sched_getaffinity(tid) == {decode_core}]
        assert len(pinned) == 1
    assert os.sched_getaffinity(0) == allowed


async def test_a_single_core_works() -> None:
    allowed = os.sched_getaffinity(0)
    result: list[int] = []

    def on_one_core() -> None:
        # The affinity mask is the thread's: a new thread spares the test process its own.
        os.sched_setaffinity(0, {min(allowed)})

        async def run() -> None:
            async with running_engine() as engine:
                assert not engine.placement.is_pinned
                tokens, _ = await generate(
                    engine, SequenceRequest(prompt=[1], sampling=ENDLESS, max_tokens=10)
                )
                result.extend(tokens)

        asyncio.run(run())

    thread = threading.Thread(target=on_one_core)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert len(result) == 10


async def test_stats_add_up() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        for _ in range(3):
            await generate(
                engine,
                SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=10, cache_prompt=False),
            )
        stats = engine.stats()
        assert stats.n_tokens_decoded == 30
        assert stats.n_tokens_prompt == 3 * len(prompt)
        assert stats.n_requests_started == stats.n_requests_finished == 3
        assert stats.n_slots_active == 0
        assert stats.heartbeat_age_s == 0


async def test_every_step_wakes_the_reader_at_most_once_and_fast_ones_share() -> None:
    n_writes: dict[int, int] = {}
    for wake_interval_us in (0, 10_000_000):
        async with running_engine(wake_interval_us=wake_interval_us) as engine:
            request = SequenceRequest(
                prompt=[1], sampling=ENDLESS, max_tokens=900, cache_prompt=False
            )
            tokens, _ = await generate(engine, request)
            assert len(tokens) == 900
            stats = engine.stats()
            assert stats.n_event_writes <= stats.n_steps + 3
            n_writes[wake_interval_us] = stats.n_event_writes
    # Start, first token and end are never delayed; the 898 between them were one wake-up.
    assert n_writes[10_000_000] <= 6 < n_writes[0]


async def test_requests_of_the_same_sampling_draw_their_own_seeds() -> None:
    sampling = SamplingParams(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, ignore_eos=True)
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once")

        async def answer(params: SamplingParams) -> tuple[int, ...]:
            request = SequenceRequest(prompt=prompt, sampling=params, max_tokens=16)
            return tuple((await generate(engine, request))[0])

        assert len({await answer(sampling) for _ in range(4)}) > 1
        seeded = SamplingParams(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
        assert await answer(seeded) == await answer(seeded)
        greedy = [await answer(SamplingParams(temperature=0, seed=seed)) for seed in (1, 2)]
        assert greedy[0] == greedy[1]
