#!/usr/bin/env python3
"""Both servers with default flags, as a user meets them: first tokens, streams, four at once.

No server gets a flag about speed; `-m` and `--port` alone, and `-ngl 0` for a llama-server that was
built for a GPU. Requests go to one server at a time, ABBA, while the other one idles. Prompts are
words and differ from request to request. Each model is measured three times: with nothing else to
do; with a front end that another client keeps busy, by having a text of 2000 words tokenised 50
times a second; and right behind a stream of the other server, whose threads still spin then, as any
other process on the machine may.

The peer runs on its own libraries as it was built, OpenMP included; with `--our-libraries` on ours.
`--cores` holds both servers to so many cores, one hyper-thread of each physical core first, or to
the cores named; the client then runs on the others, if there are any. llama-server counts the
machine's cores and not those that it may use, so it gets `-t` with the number where they differ.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.bench.rig.hardware import describe_hardware, physical_cores
from tests.bench.rig.peer import Peer, layers_as_ours
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import StreamTiming, post_json, stream_completion
from tests.support.repeatedly import repeatedly

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "engine_ext/models/demo.gguf"
OURS, PEER = "unpaced", "llama_server"
TEXT = (
    "once upon a time there was a small dog who lived near the river and liked to sing about the"
    " moon with friends every day"
)
WORDS = TEXT.split()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of request: `n_at_once` of them begin together."""

    name: str
    n_words: int
    n_tokens: int
    n_at_once: int = 1


CASES = (
    Case(name="short prompt", n_words=18, n_tokens=24),
    Case(name="long prompt", n_words=400, n_tokens=8),
    Case(name="stream", n_words=8, n_tokens=200),
    Case(name="four at once", n_words=12, n_tokens=60, n_at_once=4),
)
_STREAM = CASES[2]
# Longer than ggml's threads spin behind a step.
_SPINNING_S = 0.3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a client saw; of several clients the worst first token and the longest gap."""

    first_token_ms: float
    tokens_per_s: float
    """Of all clients together, from the first request to the last token."""
    longest_gap_ms: float
    cpu_ms_per_token: float
    """Of all threads of the server, the prompt's share included."""


def prompt(number: int, n_words: int) -> str:
    """Words that differ from one number to the next from the first on."""
    return " ".join(random.Random(number).choices(WORDS, k=n_words))


def body(number: int, case: Case) -> dict[str, Any]:
    """A request as a client with no wishes sends it, but that it does not end early."""
    text = prompt(number, case.n_words)
    return {"prompt": text, "n_predict": case.n_tokens, "ignore_eos": True, "seed": number}


def measure(server: ServerProcess, case: Case, number: int) -> Round:
    """One round of a case."""
    bodies = [body(number * case.n_at_once + i, case) for i in range(case.n_at_once)]
    before = sum(server.thread_cpu_s().values())
    start = time.perf_counter()
    with ThreadPoolExecutor(len(bodies)) as clients:
        timings = list(clients.map(lambda each: stream_completion(server.port, each), bodies))
    seconds = time.perf_counter() - start
    cpu_s = sum(server.thread_cpu_s().values()) - before
    n_tokens = sum(timing.n_tokens for timing in timings)
    return Round(
        first_token_ms=max(timing.first_token_s for timing in timings) * 1e3,
        tokens_per_s=n_tokens / seconds,
        longest_gap_ms=max(longest_gap_s(timing) for timing in timings) * 1e3,
        cpu_ms_per_token=cpu_s / n_tokens * 1e3,
    )


def longest_gap_s(timing: StreamTiming) -> float:
    """Between two frames."""
    return max((b - a for a, b in itertools.pairwise(timing.arrivals_s)), default=0.0)


def busy_front_end(port: int) -> AbstractContextManager[None]:
    """Another client asks for 2000 words to be tokenised, 50 times a second."""
    text = {"content": prompt(1, 2000)}
    return repeatedly(lambda: post_json(port, "/tokenize", text), every_s=0.02)


@contextlib.contextmanager
def confined(cores: list[int]) -> Iterator[None]:
    """Processes that are started meanwhile run on `cores`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def commands(arguments: argparse.Namespace, model: Path, scratch: Path) -> dict[str, Any]:
    """Command, environment and port of each server."""
    peer = Peer(arguments.peer.resolve(), scratch / "shim")
    ports = free_port(), free_port()
    peer_flags = [*layers_as_ours(), *arguments.peer_flags]
    if len(arguments.cores) < len(physical_cores(os.sched_getaffinity(0))):
        peer_flags += ["-t", str(len(physical_cores(set(arguments.cores))))]
    env = peer.env() if arguments.our_libraries else peer.own_env()
    return {
        OURS: (unpaced_command(ports[0], model, *arguments.flags), {}, ports[0]),
        PEER: (peer.default_command(ports[1], model, *peer_flags), env, ports[1]),
    }


def run_model(arguments: argparse.Namespace, model: Path) -> list[dict[str, Any]]:
    """A row for each case, quiet and busy."""
    rows = []
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers: dict[str, ServerProcess] = {}
        with confined(arguments.cores):
            for name, (command, env, port) in commands(arguments, model, scratch).items():
                log = scratch / f"{name}.log"
                servers[name] = stack.enter_context(running(command, env, port, log))
        stack.enter_context(confined(arguments.client_cores))
        for server in servers.values():
            measure(server, Case(name="first", n_words=1, n_tokens=4), 0)
        numbers = itertools.count(1)  # no prompt comes twice
        for load, case in itertools.product(("quiet", "busy", "behind"), arguments.cases):
            batch = list(itertools.islice(numbers, arguments.repeats))
            rounds = run_case(servers, case, batch, load)
            rows.append({"model": model.name, "case": case.name, "front_end": load} | rounds)
            print(line(rows[-1]), file=sys.stderr, flush=True)
    return rows


def run_case(
    servers: dict[str, ServerProcess], case: Case, numbers: list[int], load: str
) -> dict[str, Any]:
    """Rounds by server: median and worst of each figure."""
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    for number in numbers:
        for name in servers if number % 2 else [*servers][::-1]:
            server, other = servers[name], servers[PEER if name == OURS else OURS]
            if load == "behind":
                measure(other, _STREAM, number)
            elif load == "quiet":
                time.sleep(_SPINNING_S)
            with busy_front_end(server.port) if load == "busy" else contextlib.nullcontext():
                rounds[name].append(measure(server, case, number))
    return {name: summary(each) for name, each in rounds.items()}


def summary(rounds: list[Round]) -> dict[str, dict[str, float]]:
    """Median and worst, by figure."""
    table: dict[str, dict[str, float]] = {}
    for field in dataclasses.fields(Round):
        values = [getattr(each, field.name) for each in rounds]
        worst: Callable[..., float] = min if "per_s" in field.name else max
        table[field.name] = {"median": statistics.median(values), "worst": worst(values)}
    return table


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    cells = [row["model"], row["case"], row["front_end"]]
    for figure, digits in (
        ("first_token_ms", 1),
        ("tokens_per_s", 1),
        ("longest_gap_ms", 1),
        ("cpu_ms_per_token", 2),
    ):
        ours, peer = row[OURS][figure], row[PEER][figure]
        cells.append(
            f"{ours['median']:.{digits}f} ({ours['worst']:.{digits}f}) \\| "
            f"{peer['median']:.{digits}f} ({peer['worst']:.{digits}f})"
        )
    return "| " + " | ".join(cells) + " |"


def markdown(report: dict[str, Any]) -> str:
    """A table; docs/bench/defaults.md has those of several runs."""
    figures = ["first token ms", "tokens/s", "longest gap ms", "CPU ms a token"]
    heads = ["model", "case", "front end", *figures]
    return "\n".join(
        [
            f"    {report['command']}",
            "",
            f"Hardware: {report['hardware']}. Servers on cores {report['cores']}, client on "
            f"{report['client_cores']}. Processes that wanted to run meanwhile: "
            f"{report['load']:.0f}. Median (worst), ours \\| llama-server.",
            "",
            "| " + " | ".join(heads) + " |",
            "|" + "---|" * len(heads),
            *map(line, report["results"]),
            "",
        ]
    )


def chosen_cores(text: str | None) -> list[int]:
    """Cores of `--cores`: a number of them, or their numbers with commas."""
    allowed = os.sched_getaffinity(0)
    if text is None:
        return sorted(allowed)
    if "," in text:
        return [int(core) for core in text.split(",")]
    groups = physical_cores(allowed)
    depth = max(map(len, groups))
    order = [group[i] for i in range(depth) for group in groups if i < len(group)]
    return sorted(order[: int(text)])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder of the peer's binaries")
    parser.add_argument("--our-libraries", action="store_true", help="the peer runs on them, too")
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--cores", help="how many, or which: 0,2,4,6")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--case", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--flags", type=str.split, default=[], help="of ours, to compare")
    parser.add_argument("--peer-flags", type=str.split, default=[])
    parser.add_argument("--out", type=Path, help="file for the JSON")
    arguments = parser.parse_args()
    arguments.cases = [case for case in CASES if not arguments.case or case.name in arguments.case]
    arguments.cores = chosen_cores(arguments.cores)
    all_cores = sorted(os.sched_getaffinity(0))
    others = [core for core in all_cores if core not in arguments.cores]
    arguments.client_cores = others or all_cores
    words = ["PEER" if w == str(arguments.peer) else Path(w).name for w in sys.argv[1:]]
    report: dict[str, Any] = {
        "command": "python -m tests.bench.bench_defaults " + " ".join(words),
        "hardware": describe_hardware(),
        "cores": arguments.cores,
        "client_cores": arguments.client_cores,
        "results": [row for model in arguments.model for row in run_model(arguments, model)],
    }
    report["load"] = os.getloadavg()[0]
    print(markdown(report))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
