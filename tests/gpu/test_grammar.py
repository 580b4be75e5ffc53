"""Grammars while the GPU draws: the host's tokens and ends, drawn by the GPU's loop under masks
that come while it computes."""

import asyncio
import json
from pathlib import Path

import pytest

from engine_ext import (
    EngineStats,
    EventKind,
    FinishReason,
    SamplingParams,
    SequenceRequest,
)
from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import Loop, events_of, has_device, running_engine
from tests.support.device.gpu_program import await_gpu_program, needs_gpu_programs
from unpaced.grammar.spec import GrammarSource, GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

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
GRAMMARS: dict[str, tuple[GrammarSource, str]] = {
    "schema": ("json_schema", SCHEMA),
    "words": ("regex", "([a-z]{1,8} ){40}end"),
    "anything": ("regex", "(.|\n)*"),
    "letters": ("gbnf", "root ::= [a-z ]+"),
    "choice": ("gbnf", 'root ::= ("red" | "green" | "blue" | "grey")'),
}
SAMPLED = {
    "greedy": SamplingParams(temperature=0),
    "default": SamplingParams(seed=1),
    "penalties": SamplingParams(seed=2, repeat_penalty=1.3, presence_penalty=0.4),
    "bias": SamplingParams(seed=3, logit_bias=((5, 3.0), (9, -2.0))),
    "xtc": SamplingParams(seed=4, xtc_probability=0.5, xtc_threshold=0.05),
    "no end": SamplingParams(seed=5, ignore_eos=True),
}


async def everything(loop: Loop) -> tuple[dict[tuple[str, str], object], EngineStats]:
    async with running_engine(loop) as engine:
        prompt = await engine.tokenize("Once upon a time")
        grammars = {
            name: await compile_grammar(engine, GrammarSpec(kind, text))
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
        return results, engine.stats()


@pytest.mark.parametrize("loop", ["ahead", "device"])
async def test_grammars_give_the_hosts_tokens(loop: Loop) -> None:
    expected, _ = await everything("host")
    found, stats = await everything(loop)
    assert found == expected
    n_tokens = sum(len(end[0]) for end in expected.values() if isinstance(end, tuple))
    assert stats.n_tokens_device >= n_tokens - len(expected)
    # Its loop finds masks by itself, but for those that are late; how many hangs on the machine,
    # and a request whose masks are late again and again has a step a launch.
    print(f"{stats.steps.n_masked_tokens} by the loop, {stats.steps.n_late_masks} late")
    assert stats.steps.n_masked_tokens > 0


@pytest.mark.parametrize("loop", ["device", "ahead"])
async def test_schemas_beside_free_text_in_the_loop(loop: Loop) -> None:
    async with running_engine(loop, n_slots=4, n_lanes=4, kv_unified=True, n_ctx=4096) as engine:
        prompt = await engine.tokenize("Once upon a time")
        letters = await compile_grammar(engine, GrammarSpec(*GRAMMARS["letters"]))
        schema = await compile_grammar(engine, GrammarSpec(*GRAMMARS["schema"]))

        async def answer(i: int) -> tuple[str, FinishReason]:
            events = await events_of(
                engine,
                SequenceRequest(
                    prompt=[*prompt, i + 1],
                    sampling=SamplingParams(seed=i, ignore_eos=i % 2 == 1),
                    max_tokens=200,
                    grammar=(letters, None, schema, None)[i],
                ),
            )
            tokens = [event.token for event in events if event.kind == EventKind.TOKEN]
            text = b"".join(engine.token_pieces[token] for token in tokens)
            return text.decode(errors="replace"), FinishReason(events[-1].finish_reason)

        for _ in range(3):
            before = engine.stats().steps
            answers = await asyncio.gather(*(answer(i) for i in range(4)))
            after = engine.stats().steps
            assert set(answers[0][0]) <= set("abcdefghijklmnopqrstuvwxyz ")
            if answers[2][1] == FinishReason.EOS:
                assert set(json.loads(answers[2][0])) == {"name", "n", "tags"}
            # Several made steps together, some of them under grammars.
            assert after.n_lane_steps > before.n_lane_steps
            assert after.n_masked_tokens > before.n_masked_tokens


@needs_gpu_programs
async def test_second_draws_are_the_sampling_cores() -> None:
    await await_gpu_program("masked_draw_test", "40", "1")


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("loop", ["device", "ahead"])
@needs_gpu_programs
async def test_masks_of_any_pace_give_the_hosts_tokens(
    loop: Loop, architecture: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    await await_gpu_program("grammars_test", str(model), loop)


async def test_a_grammar_beside_a_request_without() -> None:
    async with running_engine("device", n_slots=2) as engine:
        prompt = await engine.tokenize("Once upon a time")
        grammar = await compile_grammar(engine, GrammarSpec(*GRAMMARS["words"]))
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
