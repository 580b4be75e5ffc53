#!/usr/bin/env python3
"""Streams at once, side by side with llama-server, both with default flags on the same cores.

Up to four streams neither server gets a flag about speed, and both have four slots that share a
context; for more, both get `-np N --kv-unified -c 256N`. Requests go to one server at a time, ABBA,
while the other one idles; prompts differ, and one thread reads all streams. Then short requests
come one after the other to a server in which all slots but one decode without a pause.

Rates: `steady` counts the tokens between the last stream's first token and the first stream's last
one, `whole` all tokens from the first request to the last token. First tokens and gaps count from
each stream's own request. CPU: of the whole process; `front end` is ours's main thread, and
`beside` what is not of the threads that compute, as many as cores.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.bench_defaults import DEMO, OURS, PEER, prompt
from tests.bench.rig.crowd_client import Crowd, stream_together
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer, layers_as_ours
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import StreamTiming

N_DEFAULT_SLOTS = 4
N_CELLS_PER_SLOT = 256
N_WORDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """So many streams once. Times in milliseconds, rates in tokens a second."""

    steady: float
    whole: float
    first_token: float
    last_first_token: float
    longest_gap: float
    cpu_us: float
    beside_us: float
    front_end_us: float


def body(number: int, n_tokens: int, n_words: int = N_WORDS) -> dict[str, Any]:
    """A request as a client with no wishes sends it, but that it does not end early."""
    text = prompt(number, n_words)
    return {"prompt": text, "n_predict": n_tokens, "ignore_eos": True, "seed": number}


def measure(server: ServerProcess, bodies: Sequence[dict[str, Any]]) -> Round:
    """All requests at once."""
    before = server.thread_cpu_s()
    seconds, timings = stream_together(server.port, bodies)
    time.sleep(0.02)  # workers that wait for more are counted as they are
    after = server.thread_cpu_s()
    spent = {thread: cpu - before.get(thread, 0.0) for thread, cpu in after.items()}
    n_tokens = sum(timing.n_tokens for timing in timings)
    n_computing = len(os.sched_getaffinity(0))
    per_token = 1e6 / n_tokens
    firsts = [timing.first_token_s * 1e3 for timing in timings]
    return Round(
        steady=steady_rate(timings),
        whole=n_tokens / seconds,
        first_token=statistics.median(firsts),
        last_first_token=max(firsts),
        longest_gap=max(longest_gap_ms(timing) for timing in timings),
        cpu_us=sum(spent.values()) * per_token,
        beside_us=sum(sorted(spent.values())[:-n_computing]) * per_token,
        front_end_us=spent[server.pid] * per_token,
    )


def steady_rate(timings: Sequence[StreamTiming]) -> float:
    """Tokens a second while every stream runs."""
    begin = max(timing.first_token_s for timing in timings)
    end = min(timing.last_token_s for timing in timings)
    if end <= begin:  # they followed one another
        return 0.0
    n = sum(begin < at <= end for timing in timings for at in timing.arrivals_s)
    return n / (end - begin)


def longest_gap_ms(timing: StreamTiming) -> float:
    """Between two frames of a stream."""
    pairs = itertools.pairwise(timing.arrivals_s)
    return max((b - a for a, b in pairs), default=0.0) * 1e3


def newcomers_ms(server: ServerProcess, n_streams: int, n: int, first: int) -> list[float]:
    """First tokens of `n` requests that come one after the other while `n_streams` run."""
    firsts: list[float] = []
    numbers = itertools.count(first)
    with Crowd(server.port) as crowd:
        long = {crowd.add(body(next(numbers), 200)) for _ in range(n_streams)}
        while not all(crowd.n_reads(number) > 1 for number in long):
            crowd.read()
        while len(firsts) < n:
            newcomer = crowd.add(body(next(numbers), 4))
            while crowd.is_open(newcomer):
                crowd.read()
                for over in [number for number in long if not crowd.is_open(number)]:
                    long.remove(over)
                    long.add(crowd.add(body(next(numbers), 200)))
            firsts.append(crowd.timing(newcomer).first_token_s * 1e3)
    return firsts


@contextlib.contextmanager
def servers_of(
    arguments: argparse.Namespace, model: Path, n_streams: int
) -> Iterator[dict[str, ServerProcess]]:
    """Both, with room for so many streams."""
    flags: list[str] = []
    if n_streams > N_DEFAULT_SLOTS:
        n_cells = N_CELLS_PER_SLOT * n_streams
        flags = ["-np", str(n_streams), "--kv-unified", "-c", str(n_cells)]
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = Peer(arguments.peer.resolve(), scratch / "shim")
        ports = free_port(), free_port()
        theirs = [*layers_as_ours(), *flags, *arguments.peer_flags]
        command = peer.default_command(ports[1], model, *theirs)
        ours = unpaced_command(ports[0], model, *flags, *arguments.flags)
        env = peer.env() if arguments.our_libraries else peer.own_env()
        yield {
            OURS: stack.enter_context(running(ours, {}, ports[0], scratch / "ours.log")),
            PEER: stack.enter_context(running(command, env, ports[1], scratch / "peer.log")),
        }


def run_point(arguments: argparse.Namespace, model: Path, n_streams: int) -> dict[str, Any]:
    """All rounds of a number of streams: medians by server, and first tokens of all."""
    rounds: dict[str, list[Round]] = {OURS: [], PEER: []}
    firsts: dict[str, list[float]] = {OURS: [], PEER: []}
    with servers_of(arguments, model, n_streams) as servers:
        for server in servers.values():
            stream_together(server.port, [body(-i, 4) for i in range(1, n_streams + 1)])
        for i in range(arguments.repeats):
            for name in [OURS, PEER] if i % 2 else [PEER, OURS]:
                time.sleep(arguments.pause)
                numbers = range((i + 1) * n_streams, (i + 2) * n_streams)
                bodies = [body(number, arguments.n) for number in numbers]
                rounds[name].append(measure(servers[name], bodies))
        if arguments.newcomers:
            for name in [PEER, OURS]:
                time.sleep(arguments.pause)
                n_long = max(n_streams, N_DEFAULT_SLOTS) - 1
                firsts[name] = newcomers_ms(servers[name], n_long, arguments.newcomers, 100_000)
    row: dict[str, Any] = {"model": model.name, "n_streams": n_streams}
    for name in (OURS, PEER):
        row[name] = {
            "rounds": [asdict(each) for each in rounds[name]],
            "median": median_of(rounds[name]),
            "newcomers_ms": sorted(firsts[name]),
        }
    return row


def median_of(rounds: Sequence[Round]) -> dict[str, float]:
    """Figure by figure."""
    table = [asdict(each) for each in rounds]
    return {name: statistics.median(row[name] for row in table) for name in table[0]}


def p95(values: Sequence[float]) -> float:
    """Of values in order."""
    return values[min(len(values) - 1, int(len(values) * 0.95))]


def line(row: dict[str, Any]) -> str:
    """One row of the table; ours, then the peer's."""
    ours, peer = row[OURS]["median"], row[PEER]["median"]

    def both(figure: str, digits: int) -> str:
        return f"{ours[figure]:.{digits}f} \\| {peer[figure]:.{digits}f}"

    def ratio(figure: str) -> str:
        return f"{ours[figure] / peer[figure]:.2f}" if peer[figure] else "-"

    cells = [row["model"], str(row["n_streams"])]
    cells += [both("steady", 0), ratio("steady"), both("whole", 0), ratio("whole")]
    cells += [both("first_token", 1), both("last_first_token", 1), both("longest_gap", 1)]
    cells += [both("cpu_us", 0), both("beside_us", 0), f"{ours['front_end_us']:.1f}"]
    newcomers = row[OURS]["newcomers_ms"], row[PEER]["newcomers_ms"]
    if newcomers[0]:
        each = [f"{statistics.median(all_):.1f}, {p95(all_):.1f}" for all_ in newcomers]
        cells.append(" \\| ".join(each))
    else:
        cells.append("")
    return "| " + " | ".join(cells) + " |"


HEADS = (
    "model",
    "streams",
    "steady tok/s",
    "ratio",
    "whole tok/s",
    "ratio",
    "first token ms",
    "last one's ms",
    "longest gap ms",
    "CPU µs a token",
    "beside µs",
    "front end µs",
    "newcomer's first token ms, p50, p95",
)


def markdown(report: dict[str, Any]) -> str:
    """A table; docs/bench/streams.md has those of several runs."""
    return "\n".join(
        [
            f"    {report['command']}",
            "",
            f"Hardware: {report['hardware']}. Medians, ours \\| llama-server.",
            "",
            "| " + " | ".join(HEADS) + " |",
            "|" + "---|" * len(HEADS),
            *map(line, report["results"]),
            "",
        ]
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder of the peer's binaries")
    parser.add_argument("--our-libraries", action="store_true", help="the peer runs on them, too")
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--n", type=int, default=100, help="tokens a stream")
    parser.add_argument("--newcomers", type=int, default=0, help="how many, at each point")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between measurements")
    parser.add_argument("--flags", type=str.split, default=[], help="of ours, to compare")
    parser.add_argument("--peer-flags", type=str.split, default=[])
    parser.add_argument("--out", type=Path, help="file for the JSON")
    arguments = parser.parse_args()
    words = ["PEER" if w == str(arguments.peer) else Path(w).name for w in sys.argv[1:]]
    report: dict[str, Any] = {
        "command": "python -m tests.bench.crowds.bench_streams " + " ".join(words),
        "hardware": describe_hardware(),
        "results": [],
    }
    for model, n_streams in itertools.product(arguments.model, arguments.streams):
        report["results"].append(run_point(arguments, model, n_streams))
        print(line(report["results"][-1]), file=sys.stderr, flush=True)
    print(markdown(report))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
