#!/usr/bin/env python3
"""Requests of all lengths that come and are cut by chance, at the edge of memory, for an hour.

Rounds of `--round` seconds: few or many requests a second, some at once. A third has a short
prompt, a third begins as others do, a third fills the context to its last cell; some are too long,
some have no limit of tokens. Every fifth client leaves before its answer is there. After each round
everything has to be as it was: no cell in use, nobody waiting, the server's count of requests that
of the clients. Every client has to get all its tokens, or why not. Exits 1 if something is lost, or
if somebody waited longer than `--bound` seconds. Flags after `--` are the server's.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx

from tests.bench.bench_http import DEMO
from tests.bench.bench_soak import resources
from tests.bench.crowds.arrivals import Arrivals, Outcome
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command

FLAGS = ["-np", "8", "--kv-unified", "--cache-ram", "32"]
IDLE = ("kv_cells_running", "requests_running", "requests_waiting", "engine_slots_active")
CELLS = ("kv_waits_total", "kv_cells_yielded_total", "prefix_shared_tokens_total")
N_FIRST_ROUNDS = 5  # until then pages are touched for the first time
GROWTH_BYTES = 64 << 20


Metrics = defaultdict[str, float]


async def metrics(client: httpx.AsyncClient) -> Metrics:
    """Unpaced's counters and gauges, summed over their labels, without the prefix."""
    answer = await client.get("/metrics")
    sums = Metrics(float)
    for line in answer.raise_for_status().text.splitlines():
        if line.startswith("unpaced_"):
            name, value = line.rsplit(" ", 1)
            sums[name.split("{")[0].removeprefix("unpaced_")] += float(value)
    return sums


async def wait_until_idle(client: httpx.AsyncClient, timeout_s: float) -> Metrics:
    """The counters once nothing runs or waits, or as they are when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = await metrics(client)
        if not any(seen[name] for name in IDLE) or time.monotonic() > deadline:
            return seen
        await asyncio.sleep(0.2)


def faults_of(before: Metrics, after: Metrics, outcomes: list[Outcome]) -> list[str]:
    """What a round has left behind or lost."""
    faults = [f"{name} is {after[name]:g} when idle" for name in IDLE if after[name]]
    faults += [outcome.fault for outcome in outcomes if outcome.fault]
    kinds = Counter(outcome.kind for outcome in outcomes)
    ended = after["completions_finished_total"] - before["completions_finished_total"]
    cancelled = after["completions_cancelled_total"] - before["completions_cancelled_total"]
    failed = after["completions_failed_total"] - before["completions_failed_total"]
    # A client that has left may have had its whole answer under way, or none of it begun.
    if not kinds["whole"] <= ended <= kinds["whole"] + kinds["cut"]:
        faults.append(f"{kinds['whole']} whole answers, {kinds['cut']} cut, {ended:g} ended")
    if failed or ended + cancelled > kinds["whole"] + kinds["cut"]:
        faults.append(f"{ended:g} ended, {cancelled:g} cancelled, {failed:g} failed of {kinds}")
    return faults


async def measure(server: ServerProcess, options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    chance = random.Random(options.seed)
    options_of_client: dict[str, Any] = {
        "base_url": f"http://127.0.0.1:{server.port}",
        "headers": {"Connection": "close"},  # so that descriptors can be compared
        "limits": httpx.Limits(max_connections=None),
        "timeout": options.bound,
    }
    rounds: list[dict[str, Any]] = []
    faults: list[str] = []
    async with httpx.AsyncClient(**options_of_client) as client:
        n_ctx = (await client.get("/slots")).json()[0]["n_ctx"]
        end = time.monotonic() + 60 * options.minutes
        before = await wait_until_idle(client, options.bound)
        while time.monotonic() < end:
            seconds = min(options.round, max(1.0, end - time.monotonic()))
            outcomes = await Arrivals(client, n_ctx, chance).run(seconds)
            after = await wait_until_idle(client, options.bound)
            faults += (new := faults_of(before, after, outcomes))
            rounds.append(
                dict(Counter(outcome.kind for outcome in outcomes))
                | {"longest_wait_s": max((o.wait_s for o in outcomes), default=0.0)}
                | {"n_tokens": sum(o.n_tokens for o in outcomes)}
                | {name: after[name] - before[name] for name in CELLS}
                | resources(server)
            )
            print(json.dumps(rounds[-1]), *new[:5], sep="\n  ", flush=True)
            before = after
    kept = rounds[N_FIRST_ROUNDS:] or rounds
    growth = kept[-1]["memory_bytes"] - kept[0]["memory_bytes"]
    if growth > GROWTH_BYTES:
        faults.append(f"memory has grown by {growth >> 20} MiB")
    for name in ("n_threads", "n_descriptors"):
        if kept[-1][name] > kept[0][name]:
            faults.append(f"{name} has grown from {kept[0][name]} to {kept[-1][name]}")
    return {"faults": faults, "rounds": rounds}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--round", type=float, default=60, help="seconds of arrivals")
    parser.add_argument("--bound", type=float, default=60, help="seconds that nobody may wait")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--out", type=Path, help="folder for results/arrivals.json")
    parser.add_argument("flags", nargs="*", default=FLAGS, help="the server's")
    options = parser.parse_args()
    port = free_port()
    log = Path(tempfile.gettempdir()) / "bench-arrivals.log"
    with running(unpaced_command(port, options.model, *options.flags), {}, port, log) as server:
        report = asyncio.run(measure(server, options))
    kinds: Counter[str] = Counter()
    for one in report["rounds"]:
        kinds.update({name: one.get(name, 0) for name in Outcome.KINDS})
    report |= {
        "command": f"python -m tests.bench.crowds.bench_arrivals --minutes {options.minutes:g} "
        f"--round {options.round:g} --bound {options.bound:g} --seed {options.seed} "
        f"--model {options.model.name} -- {' '.join(options.flags)}",
        "hardware": describe_hardware(),
        "requests": dict(kinds),
        "tokens": sum(one["n_tokens"] for one in report["rounds"]),
        "longest_wait_s": max(one["longest_wait_s"] for one in report["rounds"]),
    } | {name: sum(one[name] for one in report["rounds"]) for name in CELLS}
    print(json.dumps({name: report[name] for name in report if name != "rounds"}, indent=1))
    if options.out is not None:
        save_figures(options.out, "arrivals", report)
    if report["faults"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
