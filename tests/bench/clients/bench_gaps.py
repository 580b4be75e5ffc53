#!/usr/bin/env python3
"""The times between a stream's tokens: which are late, and which threads' time a token takes.

Streams of `--n` tokens one after another, prompts of 16 tokens that differ, default chain. A gap is
late if it is a tenth longer than the median of its stream. The first and the last three of a stream
are told apart: the decode thread learns a step's length by them. Flags after `--` are the server's.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

N_ENDS = 3
LATE = 1.1
QUANTILES = (0.1, 0.5, 0.9, 0.99, 0.999)
CHAIN = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "ignore_eos": True}


def body(i: int, n: int) -> dict[str, Any]:
    """The i-th request."""
    prompt = [1 + (37 * i + 11 * j) % 200 for j in range(16)]
    return {"prompt": prompt, "n_predict": n, "seed": i, "cache_prompt": False, **CHAIN}


def quantiles(gaps: list[float]) -> dict[str, float | None]:
    """Microseconds, and p99 by p50. None: most tokens share a read with the one before."""
    ordered = sorted(gaps)
    of = {f"p{100 * q:g}": 1e6 * ordered[int(q * len(ordered))] for q in QUANTILES}
    return {**of, "p99_by_p50": of["p99"] / of["p50"] if of["p50"] else None}


def measure(server: ServerProcess, n_rounds: int, n: int) -> dict[str, Any]:
    """All streams, after one that warms up."""
    stream_completion(server.port, body(0, n))
    before = server.thread_cpu_s()
    inner: list[float] = []
    ends: list[float] = []
    late: Counter[int] = Counter()
    n_tokens = 0
    for i in range(1, n_rounds + 1):
        timing = stream_completion(server.port, body(i, n))
        at = timing.arrivals_s
        gaps = [b - a for a, b in itertools.pairwise(at)]
        limit = LATE * statistics.median(gaps)
        late.update(k for k, gap in enumerate(gaps) if gap > limit)
        inner += gaps[N_ENDS:-N_ENDS]
        ends += gaps[:N_ENDS] + gaps[-N_ENDS:]
        n_tokens += timing.n_tokens
    names = server.thread_names()
    cpu = {
        f"{names[thread]} {thread}": 1e6 * (seconds - before.get(thread, 0.0)) / n_tokens
        for thread, seconds in server.thread_cpu_s().items()
        if thread in names
    }
    return {
        "between_us": quantiles(inner),
        "with_ends_us": quantiles(inner + ends),
        "late": {str(place): count for place, count in sorted(late.items()) if count > 1},
        "n_late": late.total(),
        "n_gaps": len(inner + ends),
        "cpu_us_a_token": {name: us for name, us in cpu.items() if us >= 0.1},
        "cpu_us_a_token_of_all": sum(cpu.values()),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--n", type=int, default=512, help="tokens a stream")
    parser.add_argument("--out", type=Path, help="folder for results/gaps.json")
    parser.add_argument("flags", nargs="*", help="the server's")
    options = parser.parse_args()
    port = free_port()
    log = Path(tempfile.gettempdir()) / "bench-gaps.log"
    with running(unpaced_command(port, options.model, *options.flags), {}, port, log) as server:
        report = measure(server, options.rounds, options.n)
    arguments = f"--model {options.model.name} --rounds {options.rounds} --n {options.n}"
    flags = " ".join(["", "--", *options.flags]) if options.flags else ""
    report |= {
        "command": f"python -m tests.bench.clients.bench_gaps {arguments}{flags}",
        "hardware": describe_hardware(),
    }
    print(json.dumps(report, indent=1))
    if options.out is not None:
        save_figures(options.out, "gaps", report)


if __name__ == "__main__":
    main()
