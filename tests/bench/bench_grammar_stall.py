#!/usr/bin/env python3
"""What a grammar with slow masks costs a stream without one that decodes beside it.

A model of random weights with a vocabulary of 128 256, two slots. The time between two tokens of
the plain stream: alone, beside a second plain stream, and beside a stream under a hostile grammar,
of which nearly every token is refused, so that each of its tokens needs a whole mask. Event times
are the decode thread's own.

    python -m tests.bench.bench_grammar_stall VOCABULARY --out docs/bench
"""

import argparse
import asyncio
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.bench.bench_grammar import TINY, summary
from tests.bench.make_random_model import QUANTS, write_model
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

# Ambiguous at every character, so that its masks take milliseconds.
HOSTILE: Final = "root ::= [a-z ] root [a-z ] | [a-z ]"


async def times_us(engine: Engine, request: SequenceRequest) -> list[int]:
    """When the decode thread published the request's tokens."""
    return [e.t_us async for e in engine.submit(request) if e.kind == int(EventKind.TOKEN)]


def intervals_ms(times: list[int]) -> dict[str, float]:
    """Between tokens, after the first ten."""
    return summary([(b - a) / 1e3 for a, b in pairwise(times[10:])])


async def measure(engine: Engine, n_tokens: int) -> dict[str, Any]:
    """The plain stream's intervals, milliseconds, and the hostile one's masks."""
    sampling = SamplingParams(temperature=1.0, seed=1, ignore_eos=True)
    plain = SequenceRequest(prompt=[1, 2, 3], sampling=sampling, max_tokens=n_tokens)
    alone = await times_us(engine, plain)
    both = await asyncio.gather(times_us(engine, plain), times_us(engine, plain))
    grammar = await compile_grammar(engine, GrammarSpec("gbnf", HOSTILE))
    masked = SequenceRequest(
        prompt=[4, 5, 6], sampling=sampling, max_tokens=n_tokens, grammar=grammar
    )
    stream = engine.submit(masked)
    beside = await times_us(engine, plain)
    stream.cancel()
    hostile = [e.t_us async for e in stream if e.kind == int(EventKind.TOKEN)]
    report = {
        "alone": intervals_ms(alone),
        "beside a plain stream": intervals_ms(both[0]),
        "beside a hostile grammar": intervals_ms(beside),
        "hostile_tokens": len(hostile),
        "hostile_failure": stream.grammar_failure,
    }
    if len(hostile) > 20:
        report["the hostile one"] = intervals_ms(hostile)
    return report


async def run(vocabulary: Path, n_tokens: int) -> dict[str, Any]:
    """The report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_model(path, TINY, QUANTS["Q8_0"], vocabulary)
        config = EngineConfig(model_path=path, n_ctx=4096, n_slots=2, n_threads=1)
        async with Engine(config) as engine:
            return {"hardware": describe_hardware(), **await measure(engine, n_tokens)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vocabulary", type=Path, help="models/ggml-vocab-llama-bpe.gguf")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--out", type=Path, help="folder for results/grammar_stall.json")
    arguments = parser.parse_args()
    report = asyncio.run(run(arguments.vocabulary, arguments.tokens))
    print(json.dumps(report, indent=1))
    if arguments.out is not None:
        save_figures(arguments.out, "grammar_stall", report)


if __name__ == "__main__":
    main()
