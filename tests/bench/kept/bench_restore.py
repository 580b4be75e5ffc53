#!/usr/bin/env python3
"""A prompt that host memory has: how long until its first token, copied from there and computed.

For each of `--tokens` some prompts are sent for the first time, which computes them, then again,
each after others have taken its slot. What the server did is in the row: it copies, unless it knows
computing to be quicker. `--beside` streams decode meanwhile. At the end what the server has learned
of a token's costs.
"""

import argparse
import contextlib
import json
import random
import re
import shlex
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import free_port, running, unpaced_command
from tests.bench.rig.sse_client import post_json, stream_completion
from tests.support.repeatedly import repeatedly

COUNTS = ("copied", "computed", "tried")


def read(port: int, path: str) -> str:
    """The answer to a GET."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def counts(port: int) -> dict[str, int]:
    """What became of the prompts that host memory had, since the start."""
    metrics = read(port, "/metrics")
    found = {}
    for name in COUNTS:
        value = re.search(rf"^unpaced_prompt_cache_{name}_total (\S+)", metrics, re.MULTILINE)
        if value is None:
            raise RuntimeError(f"no count of {name}")
        found[name] = int(float(value[1]))
    return found


def settle(port: int) -> None:
    """What the slots held is copied: what is parked comes back without a copy."""
    busy = re.compile(r"^unpaced_prompt_cache_seconds_total (\S+)", re.MULTILINE)
    spent = ""
    while (found := busy.search(read(port, "/metrics"))) and found[1] != spent:
        spent = found[1]
        time.sleep(0.05)


def ask(port: int, prompt: list[int]) -> tuple[float, int]:
    """Milliseconds until the first and only token is there; prompt tokens that were reused."""
    settle(port)
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "ignore_eos": True}
    begin = time.perf_counter()
    answer = json.loads(post_json(port, "/completion", body))
    return 1e3 * (time.perf_counter() - begin), int(answer["timings"]["cache_n"])


@contextlib.contextmanager
def streams(port: int, n: int) -> Iterator[None]:
    """So many streams decode, one text after the other."""

    def decode(seed: int) -> None:
        prompt = random.Random(seed).choices(range(300, 400), k=8)
        body = {"prompt": prompt, "n_predict": 400, "ignore_eos": True, "cache_prompt": False}
        stream_completion(port, body)

    with contextlib.ExitStack() as stack:
        for seed in range(n):
            stack.enter_context(repeatedly(partial(decode, seed)))
        yield


def row(port: int, n_tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Prompts of so many tokens, each cold and then `rounds` times warm."""
    rng = random.Random(n_tokens)
    # The first token is a prompt's own: nothing of it is in a slot.
    prompts = [
        [500 + i, *rng.choices(range(300, 400), k=n_tokens - 1)] for i in range(arguments.prompts)
    ]
    before = counts(port)
    cold = [ask(port, prompt)[0] for prompt in prompts]
    warm = [ask(port, prompt) for _ in range(arguments.rounds) for prompt in prompts]
    after = counts(port)
    return {
        "n_tokens": n_tokens,
        "computed_ms": statistics.median(cold),
        "again_ms": statistics.median(ms for ms, _ in warm),
        "reused": statistics.median(n for _, n in warm),
        **{name: after[name] - before[name] for name in COUNTS},
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--prompts", type=int, default=5, help="of each length")
    parser.add_argument("--rounds", type=int, default=3, help="in which each comes again")
    parser.add_argument("--beside", type=int, default=0, help="streams that decode meanwhile")
    parser.add_argument("--flags", default="-c 16384 -t 2 -tb 2", help="the server's")
    parser.add_argument("--name", default="restore", help="of the file in results/")
    parser.add_argument("--out", type=Path, help="folder for results/NAME.json")
    arguments = parser.parse_args()
    rows = []
    print("| tokens | computed, ms | again, ms | reused | copied | computed | tried |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        command = unpaced_command(port, arguments.model, *shlex.split(arguments.flags))
        with (
            running(command, {}, port, Path(scratch) / "log"),
            streams(port, arguments.beside),
        ):
            ask(port, [300])
            for n_tokens in arguments.tokens:
                rows.append(found := row(port, n_tokens, arguments))
                print(
                    f"| {n_tokens} | {found['computed_ms']:.1f} | {found['again_ms']:.1f} | "
                    f"{found['reused']:.0f} | "
                    + " | ".join(str(found[name]) for name in COUNTS)
                    + " |",
                    flush=True,
                )
            cost = json.loads(read(port, "/props"))["unpaced"]["prompt_cache"]["cost"]
    print(f"learned: {cost}")
    if arguments.out is not None:
        report = {
            "hardware": describe_hardware(),
            "model": arguments.model.name,
            "flags": arguments.flags,
            "beside": arguments.beside,
            "rows": rows,
            "cost": cost,
        }
        save_figures(arguments.out, arguments.name, report)


if __name__ == "__main__":
    main()
