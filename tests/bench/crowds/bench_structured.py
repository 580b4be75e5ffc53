"""Structured output beside free text: tokens/s of one stream and of several, by loop.

    python -m tests.bench.crowds.bench_structured MODEL [--loops host device] [--streams 1 8]

Grammars: GBNF of one class of characters, a JSON schema of ten fields (a list of such objects,
which does not end before the tokens do), and one that allows nearly every token. A line says how
many tokens a second all streams had together while all decoded, the ratio to free text in the same
engine, how many tokens the GPU drew, how many of these its loop drew under the grammar by itself,
and of how many it asked, because their masks were late.
"""

import json
from pathlib import Path
from typing import Final

from engine_ext import Engine, Grammar
from tests.bench.crowds.engine_crowd import crowd, crowd_config, run_crowds
from tests.gpu.test_device_loop import Loop
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

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


async def speed(engine: Engine, grammar: Grammar | None, n_streams: int, n_tokens: int) -> float:
    """Tokens a second of all streams together."""
    rate, _ = await crowd(engine, n_streams, n_tokens, grammar=grammar)
    return rate


async def run(model: Path, loop: Loop, n_streams: int, n_tokens: int, n_runs: int) -> None:
    """One engine's lines."""
    async with Engine(crowd_config(model, loop, n_streams, n_tokens)) as engine:
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


if __name__ == "__main__":
    run_crowds(__doc__, run)
