"""Grammars while the GPU draws: the host's tokens and ends, drawn on the GPU a step a launch."""

import asyncio
import json

import pytest

from engine_ext import EventKind, FinishReason, SamplingParams, SequenceRequest
from engine_ext.sequence.grammar import GrammarKind
from tests.gpu.test_device_loop import Loop, events_of, has_device, running_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.anyio,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
]

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "n": {"type": "integer", "minimum": 0, "maximum": 999},
            "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 4},
        },
        "required": ["name", "n", "tags"],
        "additionalProperties": False,
    }
)
GRAMMARS: dict[str, tuple[GrammarKind, str]] = {
    "schema": ("json_schema", SCHEMA),
    "words": ("regex", "([a-z]{1,8} ){40}end"),
    "anything": ("regex", "(.|\n)*"),
}
SAMPLED = {
    "greedy": SamplingParams(temperature=0),
    "default": SamplingParams(seed=1),
    "penalties": SamplingParams(seed=2, repeat_penalty=1.3, presence_penalty=0.4),
    "bias": SamplingParams(seed=3, logit_bias=((5, 3.0), (9, -2.0))),
    "xtc": SamplingParams(seed=4, xtc_probability=0.5, xtc_threshold=0.05),
    "no end": SamplingParams(seed=5, ignore_eos=True),
}


async def everything(loop: Loop) -> tuple[dict[tuple[str, str], object], int]:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        grammars = {
            name: await engine.compile_grammar(kind, text)
            for name, (kind, text) in GRAMMARS.items()
        }
        results: dict[tuple[str, str], object] = {}
        for grammar in GRAMMARS:
            for name, sampling in SAMPLED.items():
                request = SequenceRequest(
                    prompt=prompt, sampling=sampling, max_tokens=300, grammar=grammars[grammar]
                )
                events = await events_of(engine, request)
                tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
                results[grammar, name] = (
                    tokens,
                    FinishReason(events[-1].finish_reason),
                    events[-1].n_cells,
                )
        # What comes after is not masked any more.
        plain = SequenceRequest(prompt=prompt, sampling=SAMPLED["no end"], max_tokens=300)
        results["", ""] = [
            event.token for event in await events_of(engine, plain) if event.kind == EventKind.TOKEN
        ]
        return results, engine.stats().n_tokens_device


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_grammars_give_the_hosts_tokens(loop: Loop) -> None:
    expected, _ = await everything("host")
    found, n_device = await everything(loop)
    assert found == expected
    n_tokens = sum(len(end[0]) for end in expected.values() if isinstance(end, tuple))
    assert n_device >= n_tokens - len(expected)


async def test_a_grammar_beside_a_request_without() -> None:
    async with running_engine("device", n_slots=2) as engine:
        prompt = await engine.tokenize("Once upon a time")
        grammar = await engine.compile_grammar(*GRAMMARS["words"])
        masked = SequenceRequest(
            prompt=prompt, sampling=SAMPLED["default"], max_tokens=200, grammar=grammar
        )
        short = SequenceRequest(prompt=prompt[:-1], sampling=SAMPLED["no end"], max_tokens=5)
        first = asyncio.create_task(events_of(engine, masked))
        for _ in range(6):
            await asyncio.sleep(0.01)
            await events_of(engine, short)
        text = b"".join(
            engine.token_pieces[event.token]
            for event in await first
            if event.kind == EventKind.TOKEN
        )
        assert all(word.isalpha() for word in text.decode().split())
