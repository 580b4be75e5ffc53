#!/usr/bin/env python3
"""A polite client beside a greedy one: how long its first token takes, and what it is refused.

The greedy client keeps `--greedy` streams open at once, each with another prompt of `--words`
words. The polite one sends `--burst` prompts of ten words together, waits for all answers and
`--pause` seconds, and begins anew, for `--seconds`. `first` is the time from sending a request to
its first token; `refused` counts answers of 503. In the mode `keys` each has an API key, in the
mode `addresses` there are no keys, and the two come from 127.0.0.1 and 127.0.0.2. `alone` is the
polite client without the other one. Servers run one after the other with their own defaults and
`--flags`: ours; the one that `--before` starts, the Python of an environment with an older version;
and llama-server, if `--peer` names its folder.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shlex
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.bench_http import DEMO
from tests.bench.bench_mixed_load import WORDS
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command

OURS: Final = "unpaced"
BEFORE: Final = "before"
PEER: Final = "llama-server"
MODES: Final = ("keys", "addresses")
_KEYS: Final = ("greedy", "polite")


@dataclass(slots=True)
class Client:
    """One of the two. `first_ms`: of each stream that was served."""

    name: str
    port: int
    has_key: bool
    first_ms: list[float] = field(default_factory=list)
    n_refused: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.name)

    async def stream(self, n_words: int, n_predict: int) -> None:
        """One request, from its own connection to its end."""
        body = {
            "prompt": " ".join(self._random.choices(WORDS, k=n_words)),
            "n_predict": n_predict,
            "ignore_eos": True,
            "stream": True,
        }
        payload = json.dumps(body).encode()
        key = f"Authorization: Bearer {self.name}\r\n" if self.has_key else ""
        head = (
            f"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}Connection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        address = "127.0.0.2" if self.name == "polite" else "127.0.0.1"
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(address, 0)
        )
        try:
            sent = time.perf_counter()
            writer.write(head.encode() + payload)
            status = await reader.readline()
            if b" 503 " in status:
                self.n_refused += 1
                return
            if b" 200 " not in status:
                raise RuntimeError(f"no stream: {status!r} {await reader.read(500)!r}")
            has_token = False
            while line := await reader.readline():
                if not has_token and line.startswith(b"data:"):
                    has_token = True
                    self.first_ms.append((time.perf_counter() - sent) * 1e3)
        finally:
            writer.close()

    def report(self) -> dict[str, Any]:
        """Milliseconds to the first token, and how many streams there were."""
        times = sorted(self.first_ms)
        return {
            "n": len(times),
            "n_refused": self.n_refused,
            "first_ms": {
                "p50": statistics.median(times) if times else None,
                "p95": times[int(len(times) * 0.95)] if times else None,
            },
        }


async def load(
    arguments: argparse.Namespace, port: int, *, has_keys: bool, is_alone: bool
) -> dict[str, Any]:
    """Both clients for the time that is asked for, the greedy one a second before."""
    greedy, polite = (Client(name, port, has_keys) for name in _KEYS)
    await polite.stream(10, 4)  # the first request is not like the others
    polite.first_ms.clear()

    async def keep_on() -> None:
        while True:
            await greedy.stream(arguments.words, 8)
            if greedy.n_refused:
                await asyncio.sleep(0.05)

    n_greedy = 0 if is_alone else arguments.greedy
    tasks = [asyncio.create_task(keep_on()) for _ in range(n_greedy)]
    if tasks:
        await asyncio.sleep(1)
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        async with asyncio.TaskGroup() as group:
            for _ in range(arguments.burst):
                group.create_task(polite.stream(10, 8))
        await asyncio.sleep(arguments.pause)
        for task in tasks:
            if task.done():
                task.result()  # raises what ended it
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"polite": polite.report(), "greedy": greedy.report()}


@contextlib.contextmanager
def server_of(
    name: str, arguments: argparse.Namespace, scratch: Path, *, has_keys: bool
) -> Iterator[ServerProcess]:
    """One of the servers that are compared."""
    port = free_port()
    flags = shlex.split(arguments.flags)
    if has_keys:
        flags += ["--api-key", ",".join(_KEYS)]
    env: dict[str, str] = {}
    if name == PEER:
        peer = Peer(arguments.peer, scratch / "shim")
        env = peer.env()
        flags += shlex.split(arguments.peer_flags)
        command = peer.default_command(port, arguments.model, *flags)
    elif name == BEFORE:
        command = [arguments.before, "-P", "-m", "unpaced", "serve", "-m", str(arguments.model)]
        command += ["--port", str(port), *flags]
    else:
        command = unpaced_command(port, arguments.model, *flags)
    with running(command, env, port, scratch / "server.log") as server:
        yield server


def row(name: str, mode: str, result: dict[str, Any]) -> str:
    """A line of the page's table."""
    polite, greedy = result["polite"], result["greedy"]
    times = [polite["first_ms"]["p50"], polite["first_ms"]["p95"], greedy["first_ms"]["p50"]]
    shown = ["" if ms is None else f"{ms:.1f}" for ms in times]
    return (
        f"| {name} | {mode} | {shown[0]} | {shown[1]} | {polite['n']} | {polite['n_refused']} "
        f"| {shown[2]} | {greedy['n']} |"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--seconds", type=float, default=15, help="for each server and mode")
    parser.add_argument("--greedy", type=int, default=32, help="streams of the greedy client")
    parser.add_argument("--words", type=int, default=700, help="of a prompt of the greedy client")
    parser.add_argument("--burst", type=int, default=4, help="streams of the polite client")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between its bursts")
    parser.add_argument("--flags", default="", help="of all servers, such as '-c 16384'")
    parser.add_argument("--before", help="Python of an environment with an older version of ours")
    parser.add_argument("--peer", type=Path, help="folder of llama-server and its libraries")
    parser.add_argument("--peer-flags", default="", help="of llama-server alone: '-ngl 0'")
    parser.add_argument("--out", type=Path, help="folder for results/fairness.json")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"hardware": describe_hardware(), "flags": arguments.flags}
    runs = [(OURS, "alone")]
    runs += [(name, mode) for mode in MODES for name in (OURS, BEFORE, PEER)]
    print("| server | mode | polite first p50 | p95 | streams | refused | greedy p50 | streams |")
    print("|---|---|---|---|---|---|---|---|")
    for name, mode in runs:
        if (name == BEFORE and not arguments.before) or (name == PEER and not arguments.peer):
            continue
        has_keys = mode != "addresses"
        with (
            tempfile.TemporaryDirectory() as scratch,
            server_of(name, arguments, Path(scratch), has_keys=has_keys) as server,
        ):
            is_alone = mode == "alone"
            result = asyncio.run(load(arguments, server.port, has_keys=has_keys, is_alone=is_alone))
        report[f"{name}, {mode}"] = result
        print(row(name, mode, result), flush=True)
    if arguments.out is not None:
        save_figures(arguments.out, "fairness", report)


if __name__ == "__main__":
    main()
