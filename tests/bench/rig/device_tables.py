#!/usr/bin/env python3
"""The tables of docs/bench/device-http.md from the JSON files of `bench_device`."""

import argparse
import json
from pathlib import Path
from typing import Any

from tests.bench.rig.device_servers import OURS, PEERS

Rows = list[list[str]]


def table(head: list[str], rows: Rows) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def gaps(one: dict[str, float]) -> str:
    """Times between tokens, p50 and p99, and their ratio."""
    p50, p99 = one["itl_p50_us"] / 1e3, one["itl_p99_us"] / 1e3
    return f"{p50:.2f} / {p99:.2f} ({p99 / p50:.2f})"


def models(results: list[dict[str, Any]]) -> str:
    """Every model with the default chain."""
    head = ["model", "Unpaced tok/s", *(f"{name} tok/s" for name in PEERS), "llama-bench tok/s"]
    head += ["÷ better llama-server", "÷ llama-bench", "CPU µs/token (llama-server)"]
    head += ["between tokens, p50 / p99 ms (ratio)", "llama-server's"]
    rows = []
    for one in results:
        medians = one["medians"]
        ours, peer = medians[OURS], medians["llama-server"]
        rows.append(
            [
                one["model"].removesuffix(".gguf"),
                f"**{ours['tokens_per_s']:.1f}**",
                *(f"{medians[name]['tokens_per_s']:.1f}" for name in PEERS),
                f"{one['llama_bench_tokens_per_s']:.1f}",
                f"{one['by_better_llama_server']:.3f}",
                f"{one['by_llama_bench']:.3f}",
                f"{ours['cpu_us_per_token']:.0f} ({peer['cpu_us_per_token']:.0f})",
                gaps(ours),
                gaps(peer),
            ]
        )
    return table(head, rows)


def chains(results: list[dict[str, Any]]) -> str:
    """Sampling chains by the default one."""
    head = ["model", "chain", "Unpaced tok/s", "÷ default chain", "÷ better llama-server"]
    rows = [
        [
            one["model"].removesuffix(".gguf"),
            chain,
            f"{result['medians'][OURS]['tokens_per_s']:.1f}",
            f"{one['by_default_chain'][chain]:.3f}",
            f"{result['by_better_llama_server']:.3f}",
        ]
        for one in results
        for chain, result in one["chains"].items()
    ]
    return table(head, rows)


def depths(results: list[dict[str, Any]]) -> str:
    """Speed by tokens in the context."""
    head = ["model", "depth", "Unpaced tok/s", *(f"{name} tok/s" for name in PEERS)]
    rows = [
        [
            one["model"].removesuffix(".gguf"),
            str(one["depth"]),
            *(f"{one['medians'][name]['tokens_per_s']:.1f}" for name in (OURS, *PEERS)),
            f"{one['by_better_llama_server']:.3f}",
        ]
        for one in results
    ]
    return table([*head, "÷ better llama-server"], rows)


def load(results: list[dict[str, Any]]) -> str:
    """Speed under load by that of the idle machine."""
    head = ["model", "spinners on", *(f"{name} ÷ idle" for name in (OURS, *PEERS))]
    rows = [
        [one["model"].removesuffix(".gguf"), cores]
        + [f"{one[key][name]:.3f}" for name in (OURS, *PEERS)]
        for one in results
        for cores, key in (
            ("the other cores", "by_idle_other_cores"),
            ("all cores", "by_idle_all_cores"),
        )
    ]
    return table(head, rows)


def soak(results: list[dict[str, Any]]) -> str:
    """Memory and speed over many tokens."""
    head = ["model", "tokens", "memory growth in the second half", "GPU memory growth"]
    rows = [
        [
            one["model"].removesuffix(".gguf"),
            str(one["n_tokens"]),
            f"{one['rss_growth_kib_second_half']} KiB",
            f"{one['gpu_growth_mib']} MiB",
            f"{one['speed_last_third_by_first']:.4f}",
        ]
        for one in results
    ]
    return table([*head, "speed, last third ÷ first"], rows)


PARTS = {"models": models, "chains": chains, "depths": depths, "load": load, "soak": soak}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where bench_device left its JSON files")
    arguments = parser.parse_args()
    for part, render in PARTS.items():
        # A part that ran more than once, with other models, was given a name for each.
        for path in sorted(arguments.folder.glob(f"device-{part}*.json")):
            report = json.loads(path.read_text())
            print(f"## {part}\n\n    {report['command']}\n\n{report['hardware']}\n")
            print(render(report["results"]))


if __name__ == "__main__":
    main()
