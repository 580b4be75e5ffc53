#!/usr/bin/env python3
"""Time to the first token of a prompt whose beginning the slot holds, beside llama-server.

Each request is `--prompt` token ids of which all but the last `--tail` are those of the request
before, streams, and asks for one token; the time is from the request's first byte sent to the first
event read, on a new connection. Each of `--starts` pairs of processes gets `--repeats` requests:
where a process's memory comes to lie moves its times by several per cent for as long as it lives,
so that one pair says little; `by start` is the range of their ratios. Both servers run at once on
the same libraries with the same threads (`--threads 0`: their defaults) and one slot, and are asked
in turn, ABBA, while the other one idles. `cached` is what each says it reused. One request to each
comes before that to fill the slot; it is not counted. `CPU` is what all threads of a server used
for a request: with one ggml thread it is what the time would be on a machine that has nothing else
to do.

With `--crowd N` it is N requests whose prompts have their first `--prompt` tokens in common, at
once and one after the other: the time until the last one is answered, and the tokens that were
computed. Then `--repeats` are rounds, each with a prefix that nobody holds yet.
"""

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.prefix_crowd import crowd_table, run_crowd
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "engine_ext/models/demo.gguf"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts with a common beginning; every one ends otherwise."""

    prefix: list[int]
    n_tail: int
    n_vocab: int

    def body(self, number: int) -> dict[str, Any]:
        """Request number `number`."""
        tail = random.Random(number).choices(range(100, self.n_vocab), k=self.n_tail)
        return {
            "prompt": self.prefix + tail,
            "n_predict": 1,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": True,
        }


@dataclass(frozen=True, slots=True)
class Start:
    """What one pair of processes gave, by server."""

    times: dict[str, list[float]]
    cached: dict[str, set[int]]
    cpu_ms: dict[str, float]


def measure(server: ServerProcess, body: dict[str, Any]) -> tuple[float, int]:
    """Milliseconds to the first token, and the prompt tokens that were reused."""
    timing = stream_completion(server.port, body)
    return timing.first_token_s * 1e3, int(timing.final["timings"]["cache_n"])


def run_start(arguments: argparse.Namespace, model: Path, prompts: Prompts, number: int) -> Start:
    """All requests to one pair of processes."""
    flags = ["-c", str(arguments.ctx)]
    if arguments.threads > 0:
        flags += ["-t", str(arguments.threads), "-tb", str(arguments.threads)]
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = Peer(arguments.peer.resolve(), scratch / "shim")
        ports = free_port(), free_port()
        commands = {
            "unpaced": (unpaced_command(ports[0], model, "-np", "1", *flags), {}, ports[0]),
            "llama_server": (peer.server_command(ports[1], model, *flags), peer.env(), ports[1]),
        }
        names = list(commands) if number % 2 == 0 else list(commands)[::-1]
        servers = {
            name: stack.enter_context(running(*commands[name], scratch / f"{name}.log"))
            for name in names
        }
        for server in servers.values():
            measure(server, prompts.body(0))
        start = Start({name: [] for name in servers}, {name: set() for name in servers}, {})
        cpu_before = {name: sum(s.thread_cpu_s().values()) for name, s in servers.items()}
        for i in range(1, arguments.repeats + 1):
            for name in names if i % 2 else names[::-1]:
                time.sleep(arguments.pause)
                first_ms, n_cached = measure(servers[name], prompts.body(i))
                start.times[name].append(first_ms)
                start.cached[name].add(n_cached)
        for name, server in servers.items():
            used = sum(server.thread_cpu_s().values()) - cpu_before[name]
            start.cpu_ms[name] = used / arguments.repeats * 1e3
        return start


def run_model(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """All starts for one model."""
    rng = random.Random(0)
    prefix = rng.choices(range(100, arguments.vocab), k=arguments.prompt - arguments.tail)
    prompts = Prompts(prefix, arguments.tail, arguments.vocab)
    starts = [run_start(arguments, model, prompts, i) for i in range(arguments.starts)]
    names = ("unpaced", "llama_server")
    times = {name: [t for start in starts for t in start.times[name]] for name in names}
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [
        statistics.median(start.times[names[0]]) / statistics.median(start.times[names[1]])
        for start in starts
    ]
    return {
        "model": model.name,
        "n_threads": arguments.threads,
        "cached": {name: sorted(set().union(*(s.cached[name] for s in starts))) for name in names},
        "median_ms": medians,
        "min_ms": {name: min(values) for name, values in times.items()},
        "p90_ms": {name: statistics.quantiles(v, n=10)[-1] for name, v in times.items()},
        "unpaced_by_llama_server": medians[names[0]] / medians[names[1]],
        "by_start": sorted(ratios),
        "cpu_ms": {name: statistics.fmean(s.cpu_ms[name] for s in starts) for name in names},
        "times_ms": times,
    }


def markdown(report: dict[str, Any]) -> str:
    """The table of docs/bench/prefix.md."""
    lines = [
        "# Time to the first token of a warm prompt",
        "",
        f"A prompt of {report['n_prompt']} tokens, all but the last {report['n_tail']} of them in",
        "the slot's cells, goes to ours and to llama-server in turn in one run; the program's",
        "docstring says how. Figures are milliseconds from the request to its first event.",
        "",
        f"    {report['command']}",
        "",
        f"Hardware: {report['hardware']}. Processes that wanted to run meanwhile: "
        f"{report['load']:.0f}.",
        "",
        "| model | threads | cached (peer) | unpaced median | llama-server median "
        "| ÷ llama-server | by start | min (peer) | p90 (peer) | CPU (peer) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["results"]:
        cached = {name: ", ".join(map(str, counts)) for name, counts in row["cached"].items()}
        ours, peer = "unpaced", "llama_server"
        lines.append(
            f"| {row['model']} | {row['n_threads'] or 'default'} | {cached[ours]} ({cached[peer]}) "
            f"| {row['median_ms'][ours]:.2f} | {row['median_ms'][peer]:.2f} "
            f"| {row['unpaced_by_llama_server']:.3f} "
            f"| {row['by_start'][0]:.3f} to {row['by_start'][-1]:.3f} "
            f"| {row['min_ms'][ours]:.2f} ({row['min_ms'][peer]:.2f}) "
            f"| {row['p90_ms'][ours]:.2f} ({row['p90_ms'][peer]:.2f}) "
            f"| {row['cpu_ms'][ours]:.2f} ({row['cpu_ms'][peer]:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder of the peer's binaries")
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--vocab", type=int, default=500, help="token ids are drawn below this")
    parser.add_argument("--threads", type=int, default=1, help="0: as many as each server takes")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--tail", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=40, help="requests a start")
    parser.add_argument("--starts", type=int, default=6, help="pairs of processes")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each request")
    parser.add_argument("--crowd", type=int, default=0, help="requests that begin alike")
    parser.add_argument("--out", type=Path, help="folder for results and prefix.md")
    arguments = parser.parse_args()
    words = ["PEER" if w == str(arguments.peer) else Path(w).name for w in sys.argv[1:]]
    report: dict[str, Any] = {
        "command": "python -m tests.bench.bench_prefix " + " ".join(words),
        "hardware": describe_hardware(),
        "n_prompt": arguments.prompt,
        "n_tail": arguments.tail,
    }
    if arguments.crowd > 0:
        report["results"] = [r for model in arguments.model for r in run_crowd(arguments, model)]
        report["load"] = os.getloadavg()[0]
        print(crowd_table(report))
        if arguments.out is not None:
            save_figures(arguments.out, "prefix_crowd", report)
        return
    report["results"] = [run_model(arguments, model) for model in arguments.model]
    report["load"] = os.getloadavg()[0]
    text = markdown(report)
    print(text)
    if arguments.out is not None:
        save_figures(arguments.out, "prefix", report)
        (arguments.out / "prefix.md").write_text(text)


if __name__ == "__main__":
    main()
