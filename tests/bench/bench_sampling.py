#!/usr/bin/env python3
"""Cost of sampling a token, side by side with llama.cpp's samplers, and how exactly it agrees.

Per draw: ours is sample() and accept() on the row of logits; llama.cpp's is what llama-server does,
the candidate array built from the row, the chain applied, the token accepted. The two take turns on
the same rows in one process. Then long runs of random chains count the tokens that differ.

    python -m tests.bench.bench_sampling --out docs/bench
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.support.sampling.random_sampling import mixed, off, sequence, tie_free_logits
from tests.support.sampling.sampling_library import Floats, compare, exp_differences, time_draws
from tests.support.sampling.sampling_params import Params, Sequence

N_TOKENS = 16  # of a sequence of the comparison

CHAINS = {
    "default chain": Params(),
    "default chain, penalties on": Params(
        repeat_penalty=1.1, frequency_penalty=0.1, presence_penalty=0.1
    ),
    "default chain, DRY on": Params(dry_multiplier=0.8),
    "default chain, greedy (temperature 0)": Params(temperature=0.0),
    "default chain, top-k 0": Params(top_k=0),
    "default chain, top-n-sigma 1": Params(top_n_sigma=1.0),
    "temperature only": replace(off(), temperature=0.8),
    "mirostat 2": Params(mirostat=2),
}


def model_like_logits(rng: np.random.Generator, n_vocab: int, *, peaked: bool) -> Floats:
    """Logits for two windows of n_vocab: a normal bulk and, if peaked, 200 tokens by Zipf's law."""
    logits = tie_free_logits(rng, 2 * n_vocab, 2.0)
    if peaked:
        n_top = 200 * 2 if n_vocab > 2000 else 40
        ranks = rng.permutation(np.repeat(np.arange(1, n_top // 2 + 1), 2))
        where = rng.choice(len(logits), n_top, replace=False)
        tops = 18.0 - 1.5 * np.log(ranks) + rng.normal(0, 0.3, n_top)
        logits[where] = tops.astype(np.float32)
    return logits


def cost(n_vocab: int, *, peaked: bool, n_draws: int) -> list[dict[str, Any]]:
    """Rows of the table: microseconds a token."""
    rng = np.random.default_rng(n_vocab)
    logits = model_like_logits(rng, n_vocab, peaked=peaked)
    prompt = tuple(int(token) for token in rng.integers(0, n_vocab, 200))
    rows = []
    for name, params in CHAINS.items():
        is_slow = n_vocab > 2000 and (params.top_k == 0 or params.mirostat != 0)
        n = n_draws // 20 if is_slow else n_draws
        ours, theirs = time_draws(
            logits, n_vocab, Sequence(params=params, n_tokens=n, prompt=prompt)
        )
        rows.append(
            {
                "n_vocab": n_vocab,
                "logits": "peaked" if peaked else "flat",
                "chain": name,
                "n_draws": n,
                "ours_us": round(float(np.median(ours)), 2),
                "ours_p90_us": round(float(np.quantile(ours, 0.9)), 2),
                "llama_cpp_us": round(float(np.median(theirs)), 2),
                "llama_cpp_p90_us": round(float(np.quantile(theirs, 0.9)), 2),
                "ratio": round(float(np.median(theirs) / np.median(ours)), 1),
            }
        )
    return rows


def agreement(n_draws: int) -> list[dict[str, Any]]:
    """Random chains of every kind, drawn by both."""
    rows = []
    for n_vocab, share in ((2, 0.1), (33, 0.3), (1024, 0.5), (5000, 0.08), (32001, 0.02)):
        rng = np.random.default_rng(n_vocab + 1)
        n_sequences = int(n_draws * share) // N_TOKENS
        sequences = [
            sequence(rng, mixed(rng, n_vocab), n_vocab, N_TOKENS) for _ in range(n_sequences)
        ]
        logits = tie_free_logits(rng, 3 * n_vocab + 5000, 3.0)
        result = compare(logits, n_vocab, sequences)
        rows.append(
            {
                "n_vocab": n_vocab,
                "n_sequences": n_sequences,
                "n_draws": len(result.ours),
                "n_differing": len(result.differing),
                "n_undefined": int(result.undefined.sum()),
            }
        )
    return rows


def render(result: dict[str, Any]) -> str:
    """The page for docs/bench."""
    lines = [
        "# Sampling: cost and agreement",
        "",
        f"{result['hardware']}. `{result['command']}`",
        "",
        "## Cost of a token, microseconds (median; in brackets the 90th percentile)",
        "",
        "Ours is `sample` and `accept` on the row of logits. llama.cpp's is what llama-server",
        "does for a token: the candidate array, the chain, accept. Both run in turns on the",
        "same rows. The default chain is top-k 40, top-p 0.95, min-p 0.05, temperature 0.8.",
        "Peaked logits have a top like a language model's; flat ones are plain normal",
        "numbers, the worst case of top-p without top-k.",
        "",
        "| vocabulary | logits | chain | ours | llama.cpp | times faster |",
        "|---:|---|---|---:|---:|---:|",
    ]
    for row in result["cost"]:
        lines.append(
            f"| {row['n_vocab']:,} | {row['logits']} | {row['chain']} "
            f"| {row['ours_us']:,} ({row['ours_p90_us']:,}) "
            f"| {row['llama_cpp_us']:,} ({row['llama_cpp_p90_us']:,}) | {row['ratio']} |"
        )
    lines += [
        "",
        "## Tokens that differ from llama.cpp's",
        "",
        "Chains (subsets, orders, some samplers twice), parameters, seeds, prompts and biases",
        f"are random; a sequence has {N_TOKENS} tokens, each accepted. A draw is undefined",
        "where llama.cpp's logits overflowed at a temperature near 0 (its dynamic temperature",
        "can get there): then its probabilities are NaN and it takes the last candidate; ours",
        "takes the best.",
        "",
        "| vocabulary | sequences | draws | differing | undefined |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in result["agreement"]:
        lines.append(
            f"| {row['n_vocab']:,} | {row['n_sequences']:,} | {row['n_draws']:,} "
            f"| {row['n_differing']} | {row['n_undefined']} |"
        )
    lines += ["", "## expf over whole rows", ""]
    for name, (n_different, n_compared) in result["exp"].items():
        lines.append(f"- {name}: {n_different} of {n_compared:,} floats differ from libm's expf")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=2000, help="timed draws of a chain (2000)")
    parser.add_argument("--compared", type=int, default=1_000_000, help="compared draws (1000000)")
    parser.add_argument("--out", type=Path, help="folder for results/sampling.json and sampling.md")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "hardware": describe_hardware(),
        "command": f"python -m tests.bench.bench_sampling --draws {options.draws} "
        f"--compared {options.compared}",
        "cost": [
            row
            for n_vocab in (1024, 32000, 128256)
            for peaked in (True, False)
            for row in cost(n_vocab, peaked=peaked, n_draws=options.draws)
        ],
        "agreement": agreement(options.compared),
        "exp": exp_differences(),
    }
    page = render(result)
    print(page)
    if options.out is not None:
        save_figures(options.out, "sampling", result)
        (options.out / "sampling.md").write_text(page)


if __name__ == "__main__":
    main()
