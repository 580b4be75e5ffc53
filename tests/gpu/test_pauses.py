"""Tokens after which the GPU leaves its loop for the host to look: stop strings, a reader that does
not read, an engine that stops. The host's loop says what is right."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from engine_ext import Engine, EventKind, FinishReason, SamplingParams, SequenceRequest, TokenEvent
from tests.gpu.test_device_loop import GREEDY, Loop, events_of, generate, has_device, running_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

N_TOKENS = 330  # two windows
SAMPLED = SamplingParams(seed=3, repeat_penalty=1.1, ignore_eos=True)


def stops_of(pieces: Sequence[bytes], at: int) -> list[bytes]:
    """Stop strings that the piece at `at` completes: within it, and over it and those before."""
    text = b"".join(pieces[: at + 1])
    ends = {1, len(pieces[at]), len(pieces[at]) + 1, 2 * len(pieces[at]) + 5, 40}
    return [text[-n:] for n in sorted(ends) if 0 < n <= len(text)]


def completion(pieces: Sequence[bytes], stop: bytes) -> int:
    """After how many tokens the text holds the stop string."""
    text = b""
    for n, piece in enumerate(pieces, start=1):
        text += piece
        if stop in text:
            return n
    raise AssertionError(stop)


def never_completed(pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    """Stop strings that most of these pieces might complete, and none does."""
    return tuple(b"\x01" + piece for piece in dict.fromkeys(pieces[:60]) if piece)


@pytest.mark.parametrize("loop", ["ahead", "device"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
async def test_stop_strings_end_at_the_token_that_completes_them(
    loop: Loop, sampling: SamplingParams
) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        whole = SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=N_TOKENS)
        await generate(engine, whole)  # the next ones reuse its prompt's cells
        tokens, _ = await generate(engine, whole)
        pieces = [engine.token_pieces[token] for token in tokens]
        for at in (0, 1, 2, 30, 150, 248, 249, 250, 251, 252, 253, 260, N_TOKENS - 2):
            for stop in stops_of(pieces, at):
                n = completion(pieces, stop)
                request = SequenceRequest(
                    prompt=prompt, sampling=sampling, max_tokens=N_TOKENS, stop=(stop,)
                )
                events = await events_of(engine, request)
                found = [event.token for event in events if event.kind == EventKind.TOKEN]
                assert found == tokens[:n]
                assert FinishReason(events[-1].finish_reason) is FinishReason.STOP_STRING
                assert events[-1].n_cells == len(prompt) + n - 1
        assert (await generate(engine, whole))[0] == tokens
        assert sum(engine.stats().n_requests_host.values()) == 0


@pytest.mark.parametrize("loop", ["ahead", "device"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
async def test_pauses_change_no_token(loop: Loop, sampling: SamplingParams) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        whole = SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=N_TOKENS)
        await generate(engine, whole)
        expected = await generate(engine, whole)
        stop = never_completed([engine.token_pieces[token] for token in expected[0]])
        n_before = engine.stats().n_tokens_device
        paused = SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=N_TOKENS, stop=stop)
        assert await generate(engine, paused) == expected
        assert engine.stats().n_tokens_device - n_before == N_TOKENS - 1
        # The next request has no stop strings: the pause tokens are the EOG set again.
        assert await generate(engine, whole) == expected


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_cancel_at_a_pause(loop: Loop) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        whole = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS)
        await generate(engine, whole)
        expected, _ = await generate(engine, whole)
        stop = never_completed([engine.token_pieces[token] for token in expected])
        paused = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS, stop=stop)
        for n_before in (1, 3, 40, 200):
            stream = engine.submit(paused)
            seen: list[int] = []
            last: TokenEvent | None = None
            async for last in stream:
                if last.kind == EventKind.TOKEN:
                    seen.append(last.token)
                    if len(seen) == n_before:
                        stream.cancel()
            assert last is not None
            assert seen == expected[: len(seen)]
            assert last.n_cells == len(prompt) + len(seen) - 1
            assert (await generate(engine, whole))[0] == expected


async def test_slots_change_places_at_pauses() -> None:
    async with running_engine("device", n_slots=2) as engine:
        prompt = await engine.tokenize("Once upon a time")
        tokens, _ = await generate(
            engine, SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS)
        )
        stop = never_completed([engine.token_pieces[token] for token in tokens])
        long = SequenceRequest(prompt=prompt, sampling=SAMPLED, max_tokens=N_TOKENS, stop=stop)
        short = SequenceRequest(prompt=prompt[:-1], sampling=GREEDY, max_tokens=5)
        first = asyncio.create_task(generate(engine, long))
        for _ in range(10):
            await asyncio.sleep(0.005)
            assert len((await generate(engine, short))[0]) == 5
        assert len((await first)[0]) == N_TOKENS
        assert engine.stats().n_requests_host["shared"] > 0


async def test_stop_strings_too_long_to_list_are_looked_for_on_the_host() -> None:
    async with running_engine("device") as engine:
        prompt = await engine.tokenize("Once upon a time")
        request = SequenceRequest(
            prompt=prompt, sampling=GREEDY, max_tokens=20, stop=(b"x" * 5000,)
        )
        assert len((await generate(engine, request))[0]) == 20
        assert engine.stats().n_requests_host["stop_length"] == 1
        assert engine.stats().n_tokens_device == 0


async def test_a_reader_that_does_not_read_holds_the_gpu_and_loses_nothing() -> None:
    async with running_engine("device") as engine:
        n_tokens = 5600  # the ring has 4096 places
        if engine.model.n_ctx < n_tokens + 64:
            pytest.skip("needs UNPACED_GPU_TEST_CTX of 6000 or more, for a model that has it")
        prompt = await engine.tokenize("Once upon a time")
        request = SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=n_tokens)
        await generate(engine, request)
        expected = await generate(engine, request)
        n_full = engine.stats().n_ring_full
        stream = engine.submit(request)
        events = await stream.read()  # it has begun
        deadline = time.monotonic() + 60
        # The event loop is blocked: nobody drains the ring.
        while engine.stats().n_ring_full == n_full and time.monotonic() < deadline:
            time.sleep(0.05)  # noqa: ASYNC251
        assert engine.stats().n_ring_full > n_full
        n_decoded = engine.stats().n_tokens_decoded
        time.sleep(0.5)  # noqa: ASYNC251
        assert engine.stats().n_tokens_decoded == n_decoded
        while batch := await stream.read():
            events += batch
        assert [e.token for e in events if e.kind == EventKind.TOKEN] == expected[0]
        assert [e.sequence_number for e in events] == list(range(len(events)))


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_the_engine_stops_in_the_middle_of_the_loop(loop: Loop) -> None:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        stream = engine.submit(SequenceRequest(prompt=prompt, sampling=GREEDY, max_tokens=N_TOKENS))
        events: list[TokenEvent] = []
        async for event in stream:
            events.append(event)
            if len(events) == 30:
                started = time.monotonic()
                await engine.stop()
        assert FinishReason(events[-1].finish_reason) is FinishReason.STOPPED
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert time.monotonic() - started < 5


async def test_requests_of_the_host_are_counted_by_reason() -> None:
    async with running_engine("device") as engine:
        prompt = await engine.tokenize("Once upon a time")

        async def run(engine: Engine, sampling: SamplingParams, n_probs: int = 0) -> None:
            request = SequenceRequest(
                prompt=prompt, sampling=sampling, max_tokens=8, n_probs=n_probs
            )
            await generate(engine, request)

        await run(engine, GREEDY)
        assert sum(engine.stats().n_requests_host.values()) == 0
        biases = tuple((token, -0.5) for token in range(4)) * 1100
        await run(engine, SamplingParams(seed=1, logit_bias=biases, ignore_eos=True))
        assert engine.stats().n_requests_host["logit_bias"] == 1
