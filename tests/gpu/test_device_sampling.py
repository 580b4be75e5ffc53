"""The device's sampling kernels against the host's sampling core, and probabilities with tokens."""

import pytest

from engine_ext import EventKind, SamplingParams, SequenceRequest, TokenEvent
from tests.gpu.test_device_loop import Loop, events_of, has_device, running_engine
from tests.support.device.gpu_program import needs_gpu_programs, run_gpu_program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]


# n_probs, and whether after the chain.
PROBABILITIES = ((5, False), (128, False), (20, True))
CHAINS = {
    "default": SamplingParams(seed=1, ignore_eos=True),
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "no top-k": SamplingParams(seed=2, top_k=0, repeat_penalty=1.2, ignore_eos=True),
    "mirostat": SamplingParams(seed=3, mirostat=2, ignore_eos=True),
}


@needs_gpu_programs
@pytest.mark.parametrize("n_vocab", [1, 2, 33, 700, 5000, 32000, 128256, 262144])
def test_random_chains_draw_the_hosts_tokens(n_vocab: int) -> None:
    assert " 0 differ" in run_gpu_program("device_sampling_test", "10", "5", str(n_vocab))


# What cards without clusters, and with little shared memory, run. Within 62 KiB compact code has no
# room for a vocabulary's keys, and leaves them in the card's memory.
LAUNCHES = {
    "one block": ("team=block",),
    "a grid": ("team=grid",),
    "keys far away": ("shared=62",),
    "one block, keys far away": ("team=block", "shared=62"),
}


@needs_gpu_programs
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("n_vocab", [5000, 32000, 262144])
def test_other_cards_launches_draw_the_hosts_tokens(n_vocab: int, launch: str) -> None:
    told = run_gpu_program(
        "device_sampling_test", *LAUNCHES[launch], "10", "5", str(n_vocab), may_lack_code=True
    )
    assert " 0 differ" in told
    if "far" in launch:
        assert "keys far" in told


def probabilities_of(events: list[TokenEvent]) -> list[object]:
    return [
        (event.token, event.logprob, event.top_logprobs)
        for event in events
        if event.kind == EventKind.TOKEN
    ]


async def all_probabilities(loop: Loop) -> tuple[dict[str, list[object]], int]:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time there was")
        found = {}
        for chain, sampling in CHAINS.items():
            for n_probs, after in PROBABILITIES:
                request = SequenceRequest(
                    prompt=prompt,
                    sampling=sampling,
                    max_tokens=60,
                    n_probs=n_probs,
                    post_sampling_probs=after,
                )
                events = await events_of(engine, request)
                found[f"{chain}, {n_probs}, {after}"] = probabilities_of(events)
        return found, engine.stats().n_tokens_device


def flat(values: object) -> list[float]:
    if isinstance(values, list | tuple):
        return [number for value in values for number in flat(value)]
    assert isinstance(values, int | float)
    return [float(values)]


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_probabilities_are_the_hosts(loop: Loop) -> None:
    expected, _ = await all_probabilities("host")
    found, n_device = await all_probabilities(loop)
    for name, events in expected.items():
        # Sums of exponentials are added in another order.
        assert flat(found[name]) == pytest.approx(flat(events), rel=1e-6, abs=1e-6), name
    assert n_device >= len(expected) * 59
