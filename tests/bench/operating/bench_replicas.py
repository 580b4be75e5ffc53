#!/usr/bin/env python3
"""Tokens a second of one replica of Ray Serve and of two, and of a server without Ray.

`UNPACED_RAY_BIN=.../bin python -m tests.bench.operating.bench_replicas -m model.gguf --gpus 1`

Twice as many clients as a replica has slots send one request after the other, to one replica as to
two: with one, half of them wait. Counted are the tokens that arrive within `--seconds`, after as
many seconds as it takes until all slots decode. Order: one, two, two, one.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.crowds.bench_streams import body
from tests.bench.rig.crowd_client import Crowd
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.server_process import free_port, running, unpaced_command
from tests.e2e.cluster.ray_cluster import HAS_HA_PROXY, ray_serve

N_CELLS_PER_SLOT = 512
WARM_UP_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What so many replicas did."""

    replicas: int
    """0: a server without Ray."""
    tokens_per_s: float
    n_requests: int


def measure(port: int, n_clients: int, n_tokens: int, seconds: float) -> tuple[float, int]:
    """Tokens a second of that many clients, and how many requests ended."""
    numbers = itertools.count()
    with Crowd(port) as crowd:
        running_now = {crowd.add(body(next(numbers), n_tokens)) for _ in range(n_clients)}
        begin = time.perf_counter() + WARM_UP_S
        end = begin + seconds
        ended: list[int] = []
        while time.perf_counter() < end:
            crowd.read()
            for over in [number for number in running_now if not crowd.is_open(number)]:
                running_now.remove(over)
                ended.append(over)
                running_now.add(crowd.add(body(next(numbers), n_tokens)))
        while crowd.n_open:
            crowd.read()
        everyone = ended + list(running_now)
        arrivals = [crowd.sent_at(n) + at for n in everyone for at in crowd.timing(n).arrivals_s]
    n_arrived = sum(begin <= at < end for at in arrivals)
    return n_arrived / seconds, len(ended)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--gpus", type=float, default=0.0, help="cards of a replica")
    parser.add_argument("--cpus", type=int, default=1, help="cores of a replica")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--order", type=int, nargs="+", default=[0, 1, 2, 2, 1])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    flags = f"-m {arguments.model.resolve()} -np {arguments.slots} --kv-unified"
    flags += f" -c {N_CELLS_PER_SLOT * arguments.slots}"
    load = 2 * arguments.slots, arguments.tokens, arguments.seconds
    rates: list[Rate] = []
    for replicas in arguments.order:
        if replicas:
            asked = {"replicas": replicas, "gpus": arguments.gpus, "cpus": arguments.cpus}
            with ray_serve(n_cpus=os.cpu_count() or 1, flags=flags, **asked) as cluster:
                rate, n_requests = measure(cluster.port, *load)
        else:
            port = free_port()
            threads = ["-t", str(arguments.cpus), "--no-pin"]
            command = unpaced_command(port, arguments.model, *threads, *flags.split()[2:])
            with (
                tempfile.TemporaryDirectory() as name,
                running(command, {}, port, Path(name) / "log"),
            ):
                rate, n_requests = measure(port, *load)
        rates.append(Rate(replicas=replicas, tokens_per_s=rate, n_requests=n_requests))
        print(f"{replicas} replicas: {rate:.0f} tokens/s, {n_requests} requests", flush=True)
        if arguments.out:  # each time: a round takes half a minute, and may be the last one
            arguments.out.write_text(json.dumps(found(arguments, flags, rates), indent=1))


def found(arguments: argparse.Namespace, flags: str, rates: list[Rate]) -> dict[str, Any]:
    """What is kept of a run."""
    machine = {"hardware": describe_hardware(), "flags": flags, "ha_proxy": HAS_HA_PROXY}
    asked = {"gpus": arguments.gpus, "cpus": arguments.cpus}
    return machine | asked | {"rates": [asdict(rate) for rate in rates]}


if __name__ == "__main__":
    main()
