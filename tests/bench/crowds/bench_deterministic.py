#!/usr/bin/env python3
"""`--deterministic`: requests alone and in crowds that change, token by token and bit by bit, and
what it costs.

Every request is sent alone, one after the other, and then again while others run, from two to
`--slots` at a time and a new number with each request. Tokens and log-probabilities must be equal.
(Without the flag: how many are.)
Then both that server and one with as many slots without the flag get crowds of streams, in turn.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from tests.bench.bench_defaults import DEMO, prompt
from tests.bench.crowds.bench_streams import body, measure
from tests.bench.rig.crowd_client import stream_together
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command

WITH, WITHOUT = "--deterministic", "without"
Answer = list[tuple[int, float]]


def requests(n: int, n_words_most: int, n_tokens_most: int) -> list[dict[str, Any]]:
    """Prompts of one word to many, greedy and drawn texts, by a fixed seed."""
    random = Random(1)
    made = []
    for i in range(n):
        n_words = min(n_words_most, 1 + int(random.expovariate(1 / (n_words_most / 6))))
        made.append(
            {
                "prompt": prompt(i, n_words),
                "n_predict": random.randint(8, n_tokens_most),
                "temperature": 0 if i % 4 == 0 else 1.0,
                "seed": i,
                "n_probs": 1,
                "ignore_eos": True,
            }
        )
    return made


def answer(port: int, request: dict[str, Any]) -> Answer:
    """Each token and its log-probability. Raises: RuntimeError if there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        head = {"Content-Type": "application/json"}
        connection.request("POST", "/completion", json.dumps(request), head)
        response = connection.getresponse()
        text = response.read()
    if response.status != 200:
        raise RuntimeError(text.decode())
    entries = json.loads(text)["completion_probabilities"]
    return [(entry["id"], entry["logprob"]) for entry in entries]


class Gate:
    """Lets a request begin when fewer than a number run."""

    def __init__(self) -> None:
        self._n_running = 0
        self._changed = threading.Condition()

    def enter(self, n_most: int) -> None:
        """Waits until fewer than n_most run."""
        with self._changed:
            while self._n_running >= n_most:
                self._changed.wait()
            self._n_running += 1

    def leave(self) -> None:
        """One that entered is over."""
        with self._changed:
            self._n_running -= 1
            self._changed.notify()


def in_crowds(port: int, all_of_them: Sequence[dict[str, Any]], n_most: int) -> list[Answer]:
    """Begun in another order, each when fewer than a number from 2 to n_most run."""
    random = Random(2)
    order = random.sample(range(len(all_of_them)), len(all_of_them))
    gate = Gate()

    def one(i: int) -> Answer:
        try:
            return answer(port, all_of_them[i])
        finally:
            gate.leave()

    with ThreadPoolExecutor(n_most) as pool:
        futures = {}
        for i in order:
            gate.enter(random.randint(2, n_most))
            futures[i] = pool.submit(one, i)
        return [futures[i].result() for i in range(len(all_of_them))]


@contextlib.contextmanager
def servers_of(arguments: argparse.Namespace, model: Path) -> Iterator[dict[str, ServerProcess]]:
    """With the flag and without it, as many slots each."""
    cells = ["-np", str(arguments.slots), "-c", str(arguments.cells * arguments.slots)]
    flags = {WITH: ["--deterministic"], WITHOUT: ["--no-kv-unified"]}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {
            name: stack.enter_context(
                running(
                    unpaced_command(port, model, *its, *cells, *arguments.flags),
                    {},
                    port,
                    scratch / f"{port}.log",
                )
            )
            for name, its, port in ((n, f, free_port()) for n, f in flags.items())
        }


def rates(
    servers: dict[str, ServerProcess], n_streams: int, n_tokens: int, n_rounds: int
) -> dict[str, dict[str, float]]:
    """Medians of each server with so many streams at once."""
    rounds: dict[str, list[Any]] = {name: [] for name in servers}
    numbers = itertools.count(1)
    for i in range(n_rounds + 1):
        for name in list(servers) if i % 2 else reversed(servers):
            bodies = [body(next(numbers), n_tokens) for _ in range(n_streams)]
            if i == 0:
                stream_together(servers[name].port, bodies)
            else:
                rounds[name].append(measure(servers[name], bodies))
            time.sleep(0.1)
    return {
        name: {
            figure: statistics.median(getattr(each, figure) for each in its)
            for figure in ("steady", "whole", "first_token", "longest_gap")
        }
        for name, its in rounds.items()
    }


def run(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """What is equal, and the rates."""
    row: dict[str, Any] = {"model": model.name, "n_slots": arguments.slots}
    with servers_of(arguments, model) as servers:
        all_of_them = requests(arguments.requests, arguments.words, arguments.tokens)
        for name, server in servers.items():
            its = all_of_them if name == WITH else all_of_them[: arguments.without]
            begin = time.perf_counter()
            alone = [answer(server.port, request) for request in its]
            middle = time.perf_counter()
            together = in_crowds(server.port, its, arguments.slots)
            n_equal = sum(a == b for a, b in zip(alone, together, strict=True))
            row[name] = {
                "n_requests": len(alone),
                "n_tokens": sum(map(len, alone)),
                "n_equal": n_equal,
                "alone_s": middle - begin,
                "in_crowds_s": time.perf_counter() - middle,
            }
            print(f"{model.name}, {name}: {n_equal} of {len(alone)} equal", row[name], flush=True)
        row["rates"] = {}
        for n_streams in arguments.streams:
            found = rates(servers, n_streams, arguments.n, arguments.repeats)
            row["rates"][n_streams] = found
            print(f"{model.name}, {n_streams} streams:", found, flush=True)
    return row


def main() -> None:
    """Command line; exit status 1 where a request's tokens hung on its company."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--without", type=int, default=100, help="of them, without the flag")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--cells", type=int, default=2048, help="of a slot")
    parser.add_argument("--words", type=int, default=900, help="of a prompt, at most")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer, at most")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--n", type=int, default=200, help="tokens of a stream")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--flags", type=str.split, default=[], help="of both servers")
    parser.add_argument("--out", type=Path, help="folder for the figures")
    arguments = parser.parse_args()
    results = [run(arguments, model) for model in arguments.model]
    if arguments.out is not None:
        figures = {"hardware": describe_hardware(), "results": results}
        save_figures(arguments.out, "deterministic", figures)
    raise SystemExit(any(row[WITH]["n_equal"] < row[WITH]["n_requests"] for row in results))


if __name__ == "__main__":
    main()
