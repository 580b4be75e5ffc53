"""Context shifts under each loop: the same tokens as the host's."""

import asyncio

import pytest

from engine_ext import EventKind, FinishReason, SamplingParams, SequenceRequest
from tests.gpu.test_device_loop import GREEDY, Loop, events_of, has_device, running_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

N_CTX = 512
N_TOKENS = 1500  # several shifts, whatever a shift keeps
N_TOKENS_ONE_BY_ONE = 600  # of a text that shifts before every token behind the 512th
SEEDED = SamplingParams(seed=1, ignore_eos=True)
PENALTIES = SamplingParams(seed=2, repeat_penalty=1.1, repeat_last_n=700, ignore_eos=True)

# Tokens, why they ended, shifts and cells.
Shifted = tuple[list[int], FinishReason, int, int]


def cases(prompt: list[int]) -> dict[str, SequenceRequest]:
    """Requests that fill the context."""
    long = prompt * (300 // len(prompt))

    def request(sampling: SamplingParams = GREEDY, **more: object) -> SequenceRequest:
        fields: dict[str, object] = {
            "prompt": prompt,
            "cache_prompt": False,
            "max_tokens": N_TOKENS,
        }
        return SequenceRequest(
            sampling=sampling,
            **(fields | more),  # type: ignore[arg-type]
        )

    return {
        "greedy": request(),
        "seeded": request(SEEDED),
        "penalties": request(PENALTIES),
        "keep the prompt": request(SEEDED, n_keep=-1),
        "keep a long prompt": request(SEEDED, prompt=long, n_keep=-1),
        "keep some": request(SEEDED, n_keep=100),
        "drop one": request(SEEDED, n_discard=1, max_tokens=N_TOKENS_ONE_BY_ONE),
        "drop many": request(SEEDED, n_discard=400),
        "stop strings": request(SEEDED, stop=(b"\x01never", b"nor this")),
        "cached prompt": request(SEEDED, cache_prompt=True),
    }


async def shifted(loop: Loop, n_slots: int) -> tuple[dict[str, Shifted], int]:
    found: dict[str, Shifted] = {}
    async with running_engine(
        loop, n_slots=n_slots, n_ctx=N_CTX * n_slots, context_shift=True
    ) as engine:
        prompt = await engine.tokenize("Once upon a time there was")
        for name, request in cases(prompt).items():
            await engine.compile_stop(request.stop)
            events = await events_of(engine, request)
            tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
            last = events[-1]
            reason = FinishReason(last.finish_reason)
            found[name] = (tokens, reason, last.n_shifts, last.n_cells)
        return found, engine.stats().n_tokens_device


@pytest.fixture(scope="module", params=[1, 2])
def n_slots(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def expected(n_slots: int) -> dict[str, Shifted]:
    """From the host's loop."""
    return asyncio.run(shifted("host", n_slots))[0]


def test_the_host_shifts(expected: dict[str, Shifted]) -> None:
    for name, (tokens, reason, n_shifts, _) in expected.items():
        n_tokens = N_TOKENS_ONE_BY_ONE if name == "drop one" else N_TOKENS
        assert (name, len(tokens), reason) == (name, n_tokens, FinishReason.TOKEN_LIMIT)
        assert (name, n_shifts >= 3) == (name, True)


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_every_shift_gives_the_hosts_tokens(
    loop: Loop, n_slots: int, expected: dict[str, Shifted]
) -> None:
    found, n_device = await shifted(loop, n_slots)
    different = {
        name: next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), -1)
        for name in expected
        if found[name] != expected[name] and (texts := (found[name][0], expected[name][0]))
    }
    assert different == {}
    n_shifts = sum(each[2] for each in found.values())
    # The host makes the first token of each request and one after each shift.
    n_tokens = sum(len(each[0]) for each in expected.values())
    assert n_device >= n_tokens - len(expected) - 2 * n_shifts


async def test_a_grammar_goes_on_after_a_shift() -> None:
    texts: dict[str, list[int]] = {}
    loops: tuple[Loop, ...] = ("host", "device")
    for loop in loops:
        async with running_engine(loop, n_ctx=256, context_shift=True) as engine:
            prompt = await engine.tokenize("Once upon a time there was")
            grammar = await engine.compile_grammar("regex", "([a-z]{1,9} ){400}")
            request = SequenceRequest(
                prompt=prompt, sampling=SEEDED, max_tokens=600, grammar=grammar
            )
            events = await events_of(engine, request)
            assert events[-1].n_shifts >= 1
            texts[loop] = [event.token for event in events if event.kind == EventKind.TOKEN]
    assert texts["device"] == texts["host"]


async def test_neighbours_come_and_go_while_the_context_shifts() -> None:
    async with running_engine("device", n_slots=2, n_ctx=2 * N_CTX, context_shift=True) as engine:
        prompt = await engine.tokenize("Once upon a time there was")
        long = asyncio.create_task(
            events_of(engine, SequenceRequest(prompt=prompt, sampling=SEEDED, max_tokens=N_TOKENS))
        )
        n_neighbours = 0
        while not long.done():
            await asyncio.sleep(0.03)
            events = await events_of(
                engine, SequenceRequest(prompt=prompt[:-1], sampling=SEEDED, max_tokens=5)
            )
            assert FinishReason(events[-1].finish_reason) is FinishReason.TOKEN_LIMIT
            n_neighbours += 1
        events = long.result()
        assert FinishReason(events[-1].finish_reason) is FinishReason.TOKEN_LIMIT
        assert events[-1].n_decoded == N_TOKENS
        assert events[-1].n_shifts >= 3
        assert n_neighbours >= 2
