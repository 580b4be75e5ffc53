"""Requests that begin alike, at once and one after the other, to ours and to llama-server."""

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from tests.bench.rig.peer import Peer
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import post_json

N_PREDICT: Final = 8
# By name: what both servers get beside the context.
FLAGS: Final = {"default slots": ("-np", "-1"), "a slot each": ("-kvu", "-np")}


@dataclass(frozen=True, slots=True)
class Crowd:
    """What one server made of one round: seconds, and prompt tokens that it says it computed."""

    wall_s: float
    n_computed: int


def _prompts(arguments: argparse.Namespace, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    tokens = range(100, arguments.vocab)
    prefix = rng.choices(tokens, k=arguments.prompt)
    return [prefix + rng.choices(tokens, k=arguments.tail) for _ in range(arguments.crowd)]


def _ask(server: ServerProcess, prompt: list[int]) -> int:
    body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": 0, "ignore_eos": True}
    answer = orjson.loads(post_json(server.port, "/completion", body))
    return int(answer["timings"]["prompt_n"])


def _round(server: ServerProcess, prompts: list[list[int]], n_at_once: int) -> Crowd:
    begin = time.perf_counter()
    with ThreadPoolExecutor(n_at_once) as pool:
        n_computed = sum(pool.map(lambda prompt: _ask(server, prompt), prompts))
    return Crowd(time.perf_counter() - begin, n_computed)


def run_crowd(arguments: argparse.Namespace, model: Path) -> list[dict[str, Any]]:
    """A row for each set of flags and each way to send the requests.

    Both servers of a row run at once and are asked in turn, ABBA, while the other one idles; every
    round has a prefix of its own.
    """
    rows = []
    for name, flags in FLAGS.items():
        slots = [*flags, str(arguments.crowd)] if name == "a slot each" else list(flags)
        given = ["-c", str(arguments.ctx), *slots]
        if arguments.threads > 0:
            given += ["-t", str(arguments.threads), "-tb", str(arguments.threads)]
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            peer = Peer(arguments.peer.resolve(), scratch / "shim")
            ports = free_port(), free_port()
            commands = {
                "unpaced": (unpaced_command(ports[0], model, *given), {}, ports[0]),
                "llama_server": (
                    peer.server_command(ports[1], model, *given),
                    peer.env(),
                    ports[1],
                ),
            }
            servers = {
                server: stack.enter_context(running(*command, scratch / f"{server}.log"))
                for server, command in commands.items()
            }
            for way, n_at_once in (("at once", arguments.crowd), ("one after the other", 1)):
                rounds: dict[str, list[Crowd]] = {server: [] for server in servers}
                for i in range(arguments.repeats):
                    prompts = _prompts(arguments, 1000 * n_at_once + i)
                    for server in list(servers) if i % 2 == 0 else list(servers)[::-1]:
                        rounds[server].append(_round(servers[server], prompts, n_at_once))
                rows.append(
                    {
                        "model": model.name,
                        "flags": " ".join(given),
                        "way": way,
                        "wall_s": {s: [c.wall_s for c in r] for s, r in rounds.items()},
                        "computed": {s: [c.n_computed for c in r] for s, r in rounds.items()},
                    }
                )
    return rows


def crowd_table(report: dict[str, Any]) -> str:
    """The table of docs/bench/prefix.md."""
    lines = [
        f"    {report['command']}",
        "",
        f"Hardware: {report['hardware']}. Processes that wanted to run meanwhile: "
        f"{report['load']:.0f}.",
        "",
        "| model | flags | requests | tokens computed (peer) | unpaced, s | llama-server, s | ÷ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in report["results"]:
        wall = {server: statistics.median(times) for server, times in row["wall_s"].items()}
        n = {server: max(counts) for server, counts in row["computed"].items()}
        lines.append(
            f"| {row['model']} | `{row['flags']}` | {row['way']} "
            f"| {n['unpaced']} ({n['llama_server']}) | {wall['unpaced']:.2f} "
            f"| {wall['llama_server']:.2f} | {wall['unpaced'] / wall['llama_server']:.3f} |"
        )
    return "\n".join(lines) + "\n"
