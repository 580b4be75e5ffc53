#!/usr/bin/env python3
"""Clients with prompts of every length beside each other: the longest gap of their streams.

Each of 1, 2, 4, 8 clients is a process that streams one completion after the other for
`--seconds`: prompts of 1 to `--words` words that differ, half of them with `cache_prompt`, half of
those begin with an earlier prompt of that client, every third stream is cut by its client after
some events. The requests follow from client and number, so that every server gets the same ones.
`gap` is the longest time between two reads of a stream after its first token; `first` the time from
sending a request to its first token, the wait for a slot included; `cached` the part of the prompt
tokens of the streams that ended which the server says it reused. Servers run one after the other
with their own defaults: ours, ours with `-cram 0`, and llama-server, if `--peer` names its folder.
With `--long-prompt N` something else is measured: `--streams` streams decode, and a prompt of N
tokens comes beside them, as one was computed alone before. `step` is the streams' gap before, `gap`
their longest until the prompt's first token, `first` the time to that, `alone` the same without
streams. Each `--ours` names flags of ours to compare.

`turn` is the longest time that copying slots took between two steps, as our /metrics has it; the
JSON file has each server's memory after each number of clients, too. A stream that does not begin
with 200 ends the program.
"""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import random
import shlex
import socket
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.long_prompt import measure_long_prompt
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command

PEER = "llama-server"
SERVERS = ("unpaced", "unpaced -cram 0", PEER)
WORDS = [
    "the", "a", "one", "little", "old", "king", "queen", "fox", "mill", "river", "story",
    "time", "bread", "snow", "garden", "letter", "lamp", "wolf", "walks", "says", "finds",
    "keeps", "gives", "sees", "under", "over", "near", "behind", "with", "without", "and",
    "but", "because", "while",
]  # fmt: skip
TURN = "unpaced_prompt_cache_longest_turn_seconds"


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream as its client saw it. Milliseconds; None: it had no token, or no second read."""

    first_ms: float | None
    gap_ms: float | None
    n_prompt: int
    n_cached: int
    is_cut: bool


class Client:
    """The requests of one client, in order."""

    def __init__(self, number: int, port: int, n_words: int) -> None:
        self._random = random.Random(number)
        self._port = port
        self._n_words = n_words
        self._earlier: list[str] = []

    def run(self, seconds: float) -> list[Stream]:
        """One stream after the other until the time is over."""
        end = time.monotonic() + seconds
        streams: list[Stream] = []
        while time.monotonic() < end:
            n_reads = self._random.randint(1, 40) if self._random.randrange(3) == 0 else None
            streams.append(self._stream(self._body(), n_reads))
        return streams

    def _body(self) -> dict[str, Any]:
        prompt = " ".join(self._random.choices(WORDS, k=self._random.randint(1, self._n_words)))
        reuses = self._random.random() < 0.5
        if reuses and self._earlier and self._random.random() < 0.5:
            words = (self._random.choice(self._earlier) + " " + prompt).split()
            prompt = " ".join(words[: self._n_words])
        if reuses:
            self._earlier = [*self._earlier[-7:], prompt]
        return {
            "prompt": prompt,
            "n_predict": self._random.randint(8, 96),
            "seed": self._random.randrange(1 << 30),
            "ignore_eos": True,
            "cache_prompt": reuses,
            "stream": True,
        }

    def _stream(self, body: dict[str, Any], n_reads: int | None) -> Stream:
        payload = json.dumps(body).encode()
        head = (
            "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        reads: list[float] = []
        text = b""
        is_cut = False
        with socket.create_connection(("127.0.0.1", self._port), timeout=600) as connection:
            sent = time.perf_counter()
            connection.sendall(head.encode() + payload)
            while chunk := connection.recv(1 << 20):
                text += chunk
                if b'"stop":false' in chunk or (reads and b"data:" in chunk):
                    reads.append(time.perf_counter() - sent)
                if is_cut := n_reads is not None and len(reads) >= n_reads:
                    break
        if not text.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"no stream: {text[:500]!r}")
        last = [line for line in text.split(b"\n") if line.startswith(b"data: {")]
        timings = {} if is_cut or not last else json.loads(last[-1][6:]).get("timings", {})
        n_cached = int(timings.get("cache_n", 0))
        gaps = [b - a for a, b in itertools.pairwise(reads)]
        return Stream(
            first_ms=reads[0] * 1e3 if reads else None,
            gap_ms=max(gaps) * 1e3 if gaps else None,
            n_prompt=n_cached + int(timings.get("prompt_n", 0)),
            n_cached=n_cached,
            is_cut=is_cut,
        )


def run_client(number: int, port: int, n_words: int, seconds: float) -> list[Stream]:
    """A client's process."""
    return Client(number, port, n_words).run(seconds)


def spread(values: list[float]) -> dict[str, float]:
    """Median, 90th percentile and largest."""
    values.sort()
    return {
        "p50": statistics.median(values),
        "p90": values[int(len(values) * 0.9)],
        "max": values[-1],
    }


def measure(port: int, n_clients: int, n_words: int, seconds: float) -> dict[str, Any]:
    """All clients at once."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(n_clients) as pool:
        answers = pool.starmap(run_client, [(i, port, n_words, seconds) for i in range(n_clients)])
    streams = [stream for answer in answers for stream in answer]
    n_prompt = sum(stream.n_prompt for stream in streams)
    return {
        "n_clients": n_clients,
        "n_streams": len(streams),
        "n_cut": sum(stream.is_cut for stream in streams),
        "gap_ms": spread([s.gap_ms for s in streams if s.gap_ms is not None]),
        "first_ms": spread([s.first_ms for s in streams if s.first_ms is not None]),
        "cached": sum(stream.n_cached for stream in streams) / max(1, n_prompt),
    }


def longest_turn_ms(port: int) -> float | None:
    """What our server says; None: it is another one."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
    ):
        for line in answer.read().decode().splitlines():
            if line.startswith(TURN + " "):
                return float(line.split()[1]) * 1e3
    return None


def resident_mib(pid: int) -> float:
    """Memory of a server's process itself, without the files it maps."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


@contextlib.contextmanager
def server_of(name: str, arguments: argparse.Namespace, scratch: Path) -> Iterator[ServerProcess]:
    """One of the servers that are compared, with its own defaults."""
    port = free_port()
    flags = shlex.split(arguments.flags)
    env: dict[str, str] = {}
    if name == PEER:
        peer = Peer(arguments.peer, scratch / "shim")
        env = peer.env()
        flags += shlex.split(arguments.peer_flags)
        command = peer.default_command(port, arguments.model, *flags)
    else:
        _, *extra = shlex.split(name)
        command = unpaced_command(port, arguments.model, *flags, *extra)
    with running(command, env, port, scratch / "log") as server:
        yield server


def row(name: str, result: dict[str, Any]) -> str:
    """A line of the page's table."""
    gap, first = result["gap_ms"], result["first_ms"]
    turn = result["turn_ms"]
    return (
        f"| {name} | {result['n_clients']} | {result['n_streams']} "
        f"| {gap['p50']:.1f} | {gap['p90']:.1f} | {gap['max']:.1f} "
        f"| {first['p50']:.1f} | {first['p90']:.1f} | {100 * result['cached']:.0f} % "
        f"| {'' if turn is None else f'{turn:.1f}'} |"
    )


def compare_long_prompts(arguments: argparse.Namespace) -> None:
    """Every server in turn, `--rounds` times."""
    ours = [f"unpaced {flags}".strip() for flags in arguments.ours or [""]]
    names = [*ours, *([PEER] if arguments.peer else [])]
    report: dict[str, Any] = {
        "hardware": describe_hardware(),
        "flags": arguments.flags,
        "n_streams": arguments.streams,
        "n_prompt": arguments.long_prompt,
    }
    print("| server | step | longest gap | in steps | p50 | tok/s | alone | first | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in names * arguments.rounds:
            with server_of(name, arguments, Path(scratch)) as server:
                measure(server.port, 1, 20, 1)  # its first requests are not like the others
                result = measure_long_prompt(server.port, arguments.streams, arguments.long_prompt)
            report.setdefault(name, []).append(asdict(result))
            print(
                f"| {name} | {result.step_ms:.1f} | {result.gap_ms:.1f} "
                f"| {result.gap_ms / result.step_ms:.1f} | {result.gap_p50_ms:.1f} "
                f"| {result.tokens_per_s:.0f} | {result.alone_ms:.0f} | {result.first_ms:.0f} "
                f"| {result.first_ms / result.alone_ms:.2f} |",
                flush=True,
            )
    if arguments.out is not None:
        save_figures(arguments.out, "mixed_load_long_prompt", report)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--seconds", type=float, default=30, help="for each number of clients")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--words", type=int, default=900, help="of the longest prompt")
    parser.add_argument("--flags", default="", help="of all servers, such as '-c 16384'")
    parser.add_argument("--peer", type=Path, help="folder of llama-server and its libraries")
    parser.add_argument("--peer-flags", default="", help="of llama-server alone: '-ngl 0'")
    parser.add_argument("--long-prompt", type=int, default=0, metavar="N", help="tokens; see above")
    parser.add_argument("--streams", type=int, default=8, help="beside the long prompt")
    parser.add_argument("--ours", action="append", help="flags, as '--prefill-budget 32'")
    parser.add_argument("--rounds", type=int, default=1, help="of all servers, one after the other")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=SERVERS)
    parser.add_argument("--out", type=Path, help="folder for results/mixed_load.json")
    arguments = parser.parse_args()
    if arguments.long_prompt:
        compare_long_prompts(arguments)
        return
    names = [n for n in SERVERS if n in arguments.servers and (n != PEER or arguments.peer)]
    report: dict[str, Any] = {"hardware": describe_hardware(), "flags": arguments.flags}
    print("| server | clients | streams | gap p50 | p90 | max | first p50 | p90 | cached | turn |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            with server_of(name, arguments, Path(scratch)) as server:
                measure(
                    server.port, 1, arguments.words, 1
                )  # its first requests are not like the others
                for n_clients in map(int, arguments.clients.split(",")):
                    result = measure(server.port, n_clients, arguments.words, arguments.seconds)
                    result["turn_ms"] = longest_turn_ms(server.port)
                    result["resident_mib"] = resident_mib(server.pid)
                    report.setdefault(name, []).append(result)
                    print(row(name, result), flush=True)
    if arguments.out is not None:
        save_figures(arguments.out, "mixed_load", report)


if __name__ == "__main__":
    main()
