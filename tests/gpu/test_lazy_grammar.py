"""Grammars that wait for a trigger while the GPU draws: free steps in its loop until the trigger,
steps under masks from there on. The host's loop says what is right."""

import pytest

from engine_ext import Engine, EventKind, FinishReason, SamplingParams, SequenceRequest
from engine_ext.sequence.grammar import GrammarTrigger, GrammarWait
from tests.gpu.test_device_loop import GREEDY, Loop, events_of, has_device, running_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

N_TOKENS = 300  # more than one window
Generated = tuple[list[int], FinishReason, int]  # with the cells that the slot holds then
DIGITS = "( [0-9]{3}){20}"
SAMPLED = {
    "greedy": GREEDY,
    "default": SamplingParams(seed=1, ignore_eos=True),
    "penalties": SamplingParams(seed=2, repeat_penalty=1.3, ignore_eos=True),
    "no top-k": SamplingParams(seed=3, top_k=0, ignore_eos=True),
}
# Where in the free text the trigger begins, around the end of a window too.
PLACES = (0, 40, 250)


async def tokens_of(engine: Engine, request: SequenceRequest) -> Generated:
    events = await events_of(engine, request)
    tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
    return tokens, FinishReason(events[-1].finish_reason), events[-1].n_cells


def waits_of(engine: Engine, tokens: list[int], at: int) -> dict[str, GrammarWait]:
    """Waits that the text of `tokens` ends at or soon after its token `at`."""
    pieces = [engine.token_pieces[token] for token in tokens]
    word = b"".join(pieces[at : at + 2])
    waits = {
        "token": GrammarWait((GrammarTrigger(token=tokens[at], inside=False),)),
        "piece": GrammarWait((GrammarTrigger(word=pieces[at], inside=False),)),
        "over two": GrammarWait((GrammarTrigger(word=word, inside=False),)),
        "quiet until": GrammarWait(
            (GrammarTrigger(word=pieces[at + 1], inside=False),),
            quiet=(b"\x01", pieces[at]),
            is_quiet=True,
        ),
        "never": GrammarWait((GrammarTrigger(word=b"\x01" + word, inside=False),)),
    }
    return {name: wait for name, wait in waits.items() if b"" not in (word, *pieces[at : at + 2])}


async def everything(loop: Loop) -> tuple[dict[tuple[str, int, str], Generated], int]:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        grammar = await engine.compile_grammar("regex", DIGITS)
        results: dict[tuple[str, int, str], Generated] = {}
        n_device = 0
        for name, sampling in SAMPLED.items():
            free = SequenceRequest(prompt=prompt, sampling=sampling, max_tokens=N_TOKENS)
            await tokens_of(engine, free)  # the next ones reuse its prompt's cells
            tokens, _, _ = await tokens_of(engine, free)
            for at in PLACES:
                for kind, wait in waits_of(engine, tokens, at).items():
                    lazy = await engine.lazy_grammar(grammar, wait)
                    request = SequenceRequest(
                        prompt=prompt, sampling=sampling, max_tokens=N_TOKENS, grammar=lazy
                    )
                    before = engine.stats().n_tokens_device
                    results[name, at, kind] = await tokens_of(engine, request)
                    n_device += engine.stats().n_tokens_device - before
            # What comes after waits for nothing.
            assert (await tokens_of(engine, free))[0] == tokens
        return results, n_device


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_a_lazy_grammar_gives_the_hosts_tokens(loop: Loop) -> None:
    expected, _ = await everything("host")
    found, n_device = await everything(loop)
    assert found == expected
    # Of each request all but the token that its prompt gives.
    assert n_device >= sum(len(tokens) - 1 for tokens, _, _ in expected.values())
    # Some were triggered and some were not, or this would show nothing.
    reasons = {reason for _, reason, _ in expected.values()}
    assert {FinishReason.GRAMMAR_END, FinishReason.TOKEN_LIMIT} <= reasons
