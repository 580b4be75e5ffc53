"""Structured output beside free text: tokens/s of one stream and of several, by loop.

    python -m tests.bench.crowds.bench_structured MODEL [--loops host device] [--streams 1 8]

Grammars: GBNF of one class of characters, a JSON schema of ten fields (a list of such objects,
which does not end before the tokens do), and one that allows nearly every token. A line says how
many tokens a second all streams had together while all decoded, the ratio to free text in the same
engine, how many tokens the GPU drew, how many of these its loop drew under the grammar by itself,
and of how many it asked, because their masks were late.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Final, get_args

from engine_ext import Engine, EngineConfig, EventKind, Grammar, SamplingParams, SequenceRequest
from tests.gpu.test_device_loop import Loop
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

PROMPT: Final = [(7 * i + 1) % 1000 for i in range(16)]
FIELDS: Final = {
    "name": {"type": "string", "maxLength": 40},
    "city": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "height": {"type": "number"},
    "is_member": {"type": "boolean"},
    "colour": {"enum": ["red", "green", "blue"]},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
    "joined": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    "note": {"type": "string", "maxLength": 60},
    "score": {"type": "integer"},
}
PEOPLE: Final = {
    "type": "array",
    "minItems": 1000,
    "items": {"type": "object", "properties": FIELDS, "required": list(FIELDS)},
}
SPECS: Final = {
    "[a-z ]+": GrammarSpec("gbnf", "root ::= [a-z ]+"),
    "ten fields": GrammarSpec("json_schema", json.dumps(PEOPLE)),
    "anything": GrammarSpec("gbnf", r"root ::= [^\x00]*"),
}


async def times_of(engine: Engine, request: SequenceRequest) -> list[int]:
    """When the request's tokens were published, microseconds."""
    return [e.t_us async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def speed(engine: Engine, grammar: Grammar | None, n_streams: int, n_tokens: int) -> float:
    """Tokens a second of all streams together, while all of them decode."""
    requests = [
        SequenceRequest(
            prompt=[*PROMPT, i + 1],
            sampling=SamplingParams(seed=i, ignore_eos=True),
            max_tokens=n_tokens,
            grammar=grammar,
        )
        for i in range(n_streams)
    ]
    times = await asyncio.gather(*(times_of(engine, request) for request in requests))
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    n = sum(sum(begin < t <= end for t in stream) for stream in times)
    return n * 1e6 / (end - begin)


async def run(model: Path, loop: Loop, n_streams: int, n_tokens: int, n_runs: int) -> None:
    """One engine's lines."""
    config = EngineConfig(
        model_path=model,
        n_ctx=max(4096, n_streams * (n_tokens + 256)),
        n_slots=n_streams,
        n_lanes=min(n_streams, 8),
        kv_unified=True,
        n_threads=1,
        decode_loop=loop,
    )
    async with Engine(config) as engine:
        grammars: dict[str, Grammar | None] = {"free": None}
        for name, spec in SPECS.items():
            grammars[name] = await compile_grammar(engine, spec)
        free = 0.0
        for name, grammar in grammars.items():
            await speed(engine, grammar, n_streams, n_tokens)  # graphs are captured, places met
            before = engine.stats()
            speeds = [await speed(engine, grammar, n_streams, n_tokens) for _ in range(n_runs)]
            after = engine.stats()
            best = max(speeds)
            free = free or best
            print(
                f"{loop}, {n_streams} streams, {name}: tokens/s {[round(s) for s in speeds]},",
                f"{best / free:.2f} of free text,",
                f"drawn on the GPU {after.n_tokens_device - before.n_tokens_device},",
                f"under the grammar {after.steps.n_masked_tokens - before.steps.n_masked_tokens},",
                f"late masks {after.steps.n_late_masks - before.steps.n_late_masks}",
                flush=True,
            )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--loops", nargs="+", choices=get_args(Loop), default=["host", "device"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    for loop in args.loops:
        for n_streams in args.streams:
            asyncio.run(run(args.model, loop, n_streams, args.tokens, args.runs))


if __name__ == "__main__":
    main()
