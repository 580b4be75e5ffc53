#!/usr/bin/env python3
"""One stream's tokens/s: in a server for one, in a server for many, and there after a crowd.

Both servers hold the model at the same time and are asked in turn, ABBA, with prompts that differ.
Then the second one decodes a crowd that fills all its slots, and both are asked again after
`--pause`.
"""

import argparse
import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench_defaults import DEMO
from tests.bench.crowds.bench_streams import body
from tests.bench.rig.crowd_client import stream_together
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

N_CELLS_PER_SLOT = 512
ALONE, AMONG = "a server for one", "a server for many"


@contextlib.contextmanager
def servers_of(
    model: Path, n_slots: int, n_tokens: int, extra: list[str]
) -> Iterator[dict[str, ServerProcess]]:
    """For one request, and for so many that share their cells."""
    n_cells = max(4096, N_CELLS_PER_SLOT * n_slots, 2 * n_tokens)
    flags = {ALONE: ["-np", "1"], AMONG: ["-np", str(n_slots), "--kv-unified"]}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {
            name: stack.enter_context(
                running(
                    unpaced_command(port, model, *its, "-c", str(n_cells), *extra),
                    {},
                    port,
                    scratch / f"{port}.log",
                )
            )
            for name, its, port in ((n, f, free_port()) for n, f in flags.items())
        }


def in_turn(
    servers: dict[str, ServerProcess], numbers: Iterator[int], n_tokens: int, n_rounds: int
) -> dict[str, list[float]]:
    """Tokens/s of each, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for i in range(n_rounds):
        for name in list(servers) if i % 2 else reversed(servers):
            timing = stream_completion(servers[name].port, body(next(numbers), n_tokens))
            rates[name].append(timing.tokens_per_s)
            time.sleep(0.1)
    return rates


def run(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """The rates before the crowd and after it, and their ratios."""
    numbers = itertools.count(1)
    row: dict[str, Any] = {"model": model.name, "n_slots": arguments.slots}
    with servers_of(model, arguments.slots, arguments.n, arguments.flags) as servers:
        in_turn(servers, numbers, arguments.n, 1)
        for when in ("before", "after"):
            rates = in_turn(servers, numbers, arguments.n, arguments.repeats)
            medians = {name: statistics.median(each) for name, each in rates.items()}
            row[when] = {"rates": rates, "ratio": medians[AMONG] / medians[ALONE]}
            print(
                f"{model.name}, {when} a crowd of {arguments.slots}:",
                ", ".join(f"{name} {rate:.1f} tokens/s" for name, rate in medians.items()),
                f"ratio {row[when]['ratio']:.4f}",
                flush=True,
            )
            crowd = [body(next(numbers), 100) for _ in range(arguments.slots)]
            stream_together(servers[AMONG].port, crowd)
            time.sleep(arguments.pause)
    return row


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--n", type=int, default=512, help="tokens of the stream")
    parser.add_argument("--pause", type=float, default=1, help="seconds behind the crowd")
    parser.add_argument("--flags", type=str.split, default=[], help="of both servers")
    parser.add_argument("--out", type=Path, help="folder for the figures")
    arguments = parser.parse_args()
    figures = {
        "hardware": describe_hardware(),
        "results": [run(arguments, model) for model in arguments.model],
    }
    if arguments.out is not None:
        save_figures(arguments.out, "alone", figures)


if __name__ == "__main__":
    main()
