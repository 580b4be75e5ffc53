#!/usr/bin/env python3
"""What a grammar costs a token, at a vocabulary of 128 256.

Documents are walked token by token as the decode thread does it: a pause as long as a step, the
verdict on the token, its acceptance. `mask`: the worker's time for a whole mask, by its own clock.
`verdict`: what the drawing thread waits when a step has passed. `token`: the same asked back to
back, the worker's work included. `first_`: of a sequence under a grammar that none was under
before; the others find masks that earlier sequences have left. For comparison llama.cpp's own
grammar sampler on the same GBNF: one candidate, and the whole vocabulary, which llama-server does
when it refuses a token.

    python -m tests.bench.bench_grammar VOCABULARY --out docs/bench
"""

import argparse
import asyncio
import ctypes
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

from engine_ext import Engine, EngineConfig, Grammar
from tests.bench.make_random_model import QUANTS, Shape, write_model
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.support.llama_source import grammar
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_grammar import compile_grammar

SUPPORT = Path(__file__).resolve().parents[1] / "support"
TINY = Shape(n_layer=1, n_embd=64, n_ff=128, n_head=2, n_head_kv=1, head_dim=32)
ALLOWED = 0
N_KEPT = 16  # compiled grammars that the engine keeps
JSON_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
TEXT = {
    "name": "John Smith, the third of his name",
    "age": 42,
    "tags": ["alpha", "beta", "gamma delta epsilon"],
    "address": {"street": "12 Long Road", "zip": "01234", "point": [1.5, -0.25]},
    "active": True,
}
# Required properties first, as llama.cpp's converter orders them, and ours.
REQUIRED_FIRST = {name: TEXT[name] for name in ("name", "age", "address", "tags", "active")}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 100},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                "point": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["street", "zip"],
            "additionalProperties": False,
        },
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "address"],
    "additionalProperties": False,
}
C_PAGE = "".join(
    f"int {name}(int {value}){{while({value}+{i}<limit){{int next = step({value}, {i});"
    f"// from {name} to the next one\n"
    f"if(next==0){{return {value}*( {other}-{i} );}}{value} = next+{other};}}}}"
    for i, (name, value, other) in enumerate(
        [
            ("count_words", "n", "total"),
            ("area", "width", "height"),
            ("walk", "x", "y1"),
            ("parse", "position", "length"),
            ("mix", "seed", "salt"),
            ("scan", "row", "column"),
        ]
    )
)
ARITHMETIC_PAGE = "".join(
    f"{a}+{i}*({b}-{a}_{i})= {i + 7}\n({b} +{i * 31})/{a}={b}\n"
    for i, (a, b) in enumerate(
        [("x", "y"), ("width", "height"), ("total", "rate"), ("seed", "n"), ("row", "column_b")]
    )
)
CASES: dict[str, tuple[GrammarSpec, str]] = {
    "any JSON object": (GrammarSpec.of_schema({"type": "object"}), json.dumps(TEXT)),
    "JSON schema": (GrammarSpec.of_schema(SCHEMA), json.dumps(REQUIRED_FIRST)),
    "enum of 200": (
        GrammarSpec.of_schema({"enum": [f"item {i} of many" for i in range(200)]}),
        '"item 123 of many"',
    ),
    "regular expression": (
        GrammarSpec("regex", "[A-Z][a-z ,]{10,200}[.]"),
        "The quick brown fox, the lazy dog, and all of their many friends went home.",
    ),
    "GBNF: JSON": (GrammarSpec("gbnf", JSON_GBNF), json.dumps(TEXT)),
    "GBNF: list of lines": (
        GrammarSpec("gbnf", 'root ::= ("- " [^\\n]+ "\\n")+'),
        "- flour and butter\n- four large eggs from the farm\n- salt\n",
    ),
    "GBNF: arithmetic": (
        GrammarSpec(
            "gbnf", 'root ::= e\ne ::= t ([-+*/] t)*\nt ::= "(" e ")" | [0-9]+ | [a-z]+ | " " t'
        ),
        "(123+ 4567)*(89-x)/ (total+ 12)",
    ),
    "GBNF: of the JSON schema": (
        GrammarSpec("gbnf", (SUPPORT / "grammar" / "person_schema.gbnf").read_text()),
        json.dumps(REQUIRED_FIRST),
    ),
    "GBNF: c.gbnf": (
        GrammarSpec("gbnf", grammar("c")),
        "int main(int argc){while(x+1<y){foo (a, b);// a comment of some words\n"
        "for(int i = 0; i<10; i = i+1){/* another * one */}}",
    ),
    "GBNF: c.gbnf, a page": (GrammarSpec("gbnf", grammar("c")), C_PAGE),
    "GBNF: arithmetic.gbnf, a page": (GrammarSpec("gbnf", grammar("arithmetic")), ARITHMETIC_PAGE),
    "GBNF: chess.gbnf": (
        GrammarSpec("gbnf", grammar("chess")),
        "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n4. O-O Nxe4\n",
    ),
    "GBNF: arithmetic.gbnf": (
        GrammarSpec("gbnf", grammar("arithmetic")),
        "12+ab_c*(4-foo)= 99\nx= 1\n",
    ),
    "GBNF: english.gbnf": (
        GrammarSpec("gbnf", grammar("english")),
        "Hello there, my friend! How are you today? 1234",
    ),
    "expression: words": (GrammarSpec("regex", "[A-Za-z ]+"), "The quick brown fox jumps over"),
    "expression: names": (
        GrammarSpec("regex", "[a-z_][a-zA-Z0-9_]*(, [a-z_][a-zA-Z0-9_]*)*"),
        "some_value, otherThing, a1, total_count",
    ),
    "expression: address": (
        GrammarSpec("regex", r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"),
        "john.smith@mail.example.com",
    ),
    "expression: any lines": (
        GrammarSpec("regex", r"([^\n]+\n)*"),
        'Hello world, this is "quoted" text\nof two lines\n',
    ),
}


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, median, 99th percentile, greatest."""
    ordered = sorted(values)
    return {
        "mean": statistics.fmean(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max": ordered[-1],
    }


def walk(grammar: Grammar, tokens: Sequence[int], step_s: float) -> dict[str, Any]:
    """One sequence of those tokens."""
    mask = grammar.start()
    waits, masks = [], {}
    started = time.perf_counter()
    seen_ns = seen = 0
    for i, token in enumerate(tokens):
        if step_s:
            time.sleep(step_s)
        if mask.n_masks == seen + 1:
            masks[i] = (mask.mask_ns_total - seen_ns) / 1e3
        seen, seen_ns = mask.n_masks, mask.mask_ns_total
        begin = time.perf_counter()
        verdict = mask.check(token)
        waits.append(time.perf_counter() - begin)
        assert verdict == ALLOWED, (token, mask.failure)
        mask.accept(token)
    taken = time.perf_counter() - started
    return {
        "waits": waits,
        "token_us": taken / len(tokens) * 1e6,
        "masks_us": masks,
        "n_masks": mask.n_masks,
        "n_checks": mask.n_checks,
    }


def fastest(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the masks: of every place the fastest run, of a busy machine's."""
    places = {i for run in runs for i in run["masks_us"]}
    return summary([min(run["masks_us"].get(i, math.inf) for run in runs) for i in sorted(places)])


async def first_walks(
    engine: Engine, spec: GrammarSpec, tokens: Sequence[int], n_rounds: int
) -> list[dict[str, Any]]:
    """Sequences of grammars that none was under before."""
    runs = []
    for i in range(n_rounds):
        for k in range(N_KEPT):  # the engine forgets the one of the round before
            await engine.compile_grammar("regex", f"{i}:{k}")
        runs.append(walk(await compile_grammar(engine, spec), tokens, 0.002))
    return runs


def measure(grammar: Grammar, tokens: Sequence[int], n_rounds: int) -> dict[str, Any]:
    """All figures of a grammar that has been in use, each place's mask in the fastest round."""
    walk(grammar, tokens, 0.002)
    paced = [walk(grammar, tokens, 0.002) for _ in range(n_rounds)]
    hasty = [walk(grammar, tokens, 0) for _ in range(n_rounds)]
    starts = []
    for _ in range(20):
        begin = time.perf_counter()
        grammar.start()
        starts.append(time.perf_counter() - begin)
    return {
        "n_tokens": len(tokens),
        "mask_us": fastest(paced),
        "masks_a_token": statistics.fmean(run["n_masks"] for run in paced) / len(tokens),
        "verdict_us": summary([wait * 1e6 for run in paced for wait in run["waits"]]),
        "token_us": statistics.fmean(run["token_us"] for run in hasty),
        "start_us": summary([start * 1e6 for start in starts])["p50"],
    }


def measure_llama(vocabulary: Path, gbnf: str, tokens: Sequence[int]) -> dict[str, float]:
    """llama.cpp's sampler on the same tokens: one candidate, and all of them. Microseconds."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(vocabulary).encode(), params)
    vocab = llama_cpp.llama_model_get_vocab(model)
    n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
    sampler = llama_cpp.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
    data = (llama_cpp.llama_token_data * n_vocab)()
    one: list[float] = []
    whole: list[float] = []
    for token in tokens:
        for size, times in ((1, one), (n_vocab, whole)):
            for i in range(size):
                data[i].id, data[i].logit = (token, 1.0) if size == 1 else (i, 1.0)
            array = llama_cpp.llama_token_data_array(data, size, -1, False)
            begin = time.perf_counter()
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
            times.append(time.perf_counter() - begin)
        llama_cpp.llama_sampler_accept(sampler, token)
    llama_cpp.llama_sampler_free(sampler)
    llama_cpp.llama_model_free(model)
    return {"one_us": statistics.fmean(one) * 1e6, "whole_us": statistics.fmean(whole) * 1e6}


async def run(vocabulary: Path, n_rounds: int) -> dict[str, Any]:
    """Every case. Times in microseconds unless a name says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_model(path, TINY, QUANTS["Q8_0"], vocabulary)
        async with Engine(EngineConfig(model_path=path, n_ctx=256, n_threads=1)) as engine:
            report: dict[str, Any] = {
                "hardware": describe_hardware(),
                "n_vocab": engine.model.n_vocab,
            }
            begin = time.perf_counter()
            await engine.compile_grammar("regex", "a")
            report["first_grammar_ms"] = (time.perf_counter() - begin) * 1e3
            cases = report["cases"] = {}
            for name, (spec, text) in CASES.items():
                begin = time.perf_counter()
                grammar = await compile_grammar(engine, spec)
                compiled_ms = (time.perf_counter() - begin) * 1e3
                tokens = await engine.tokenize(text, add_special=False)
                first = await first_walks(engine, spec, tokens, n_rounds)
                cases[name] = {
                    "compile_ms": compiled_ms,
                    "first_mask_us": fastest(first),
                    "first_masks_a_token": sum(run["n_masks"] for run in first)
                    / (len(tokens) * n_rounds),
                    "first_verdict_us": summary([w * 1e6 for run in first for w in run["waits"]]),
                    **measure(grammar, tokens, n_rounds),
                }
                if spec.kind == "gbnf":
                    cases[name]["llama"] = measure_llama(vocabulary, spec.text, tokens)
                print(name, json.dumps(cases[name]))
    return report


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vocabulary", type=Path, help="models/ggml-vocab-llama-bpe.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for results/grammar.json")
    arguments = parser.parse_args()
    report = asyncio.run(run(arguments.vocabulary, arguments.rounds))
    print(f"first grammar {report['first_grammar_ms']:.0f} ms; {report['hardware']}")
    if arguments.out is not None:
        save_figures(arguments.out, "grammar", report)


if __name__ == "__main__":
    main()
