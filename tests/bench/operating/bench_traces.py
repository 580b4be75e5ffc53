"""What --traces costs: two servers of the same kind, one with it, take turns.

`python -m tests.bench.operating.bench_traces [--rounds N] [--seconds S] [--out docs/bench]`. A turn
is one long stream after the other, or short requests one after the other; the collector is a
process of its own that takes all and reads nothing.
"""

import argparse
import contextlib
import http.client
import multiprocessing
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from tests.bench.rig.front_end_cpu import front_end_cpu_s
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.support.server import Server, serving

_LONG: Final = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}
_SHORT: Final = {"prompt": "Once", "n_predict": 8, "ignore_eos": True, "stream": True}
_KINDS: Final = {"streams of 900 tokens": _LONG, "requests of 8 tokens": _SHORT}
Turn = dict[str, float]
_PAGE: Final = """# Traces

`python -m tests.bench.operating.bench_traces --out docs/bench`, demo model,
{hardware}, load average {load:.1f} when it began.

Two servers of the same kind live beside one another, one of them with `--traces`, and take turns of
{turn_s:g} s, {rounds} of each, every second round the other one first. One client streams; the
front end is every thread of the server but the decode thread, the one that sends spans included.
Medians, and the median of the rounds' ratios.

| turn | figure | off | on | on / off |
|---|---|---|---|---|
{rows_of_table}

* A request leaves four spans. {spans[sent]:.0f} were sent, {spans[lost]:.0f} found no room in the
  queue, or no collector.
* The process has {off[threads]} threads and {off[resident_mib]} MiB without, {on[threads]} and
  {on[resident_mib]} MiB with `--traces`.
* Off, nothing of OpenTelemetry is imported (`tests/e2e/traces/test_traces.py`) and a request calls
  no function of `unpaced/traces` (`tests/unit/traces/test_off.py` counts them).
"""


class _Taker(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


def _take(ports: "Queue[int]") -> None:
    collector = ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    ports.put(collector.server_port)
    collector.serve_forever()


@contextlib.contextmanager
def collecting() -> Iterator[str]:
    """The address of a collector."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=_take, args=(ports,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=30)}"
    finally:
        process.terminate()
        process.join()


def turn(server: Server, body: dict[str, Any], turn_s: float) -> Turn:
    """Whole answers for at least so long."""
    data, n_tokens, n_requests = orjson.dumps(body), 0, 0
    client = http.client.HTTPConnection("127.0.0.1", server.port)
    cpu_s, began_s = front_end_cpu_s(server.process), time.perf_counter()
    while time.perf_counter() - began_s < turn_s:
        client.request("POST", "/completion", data, {"Content-Type": "application/json"})
        n_tokens += client.getresponse().read().count(b"data: ")
        n_requests += 1
    seconds = time.perf_counter() - began_s
    cpu_s = front_end_cpu_s(server.process) - cpu_s
    client.close()
    return {
        "tokens_per_s": n_tokens / seconds,
        "front_end_us_per_token": cpu_s / n_tokens * 1e6,
        "requests_per_s": n_requests / seconds,
        "front_end_us_per_request": cpu_s / n_requests * 1e6,
    }


def measure(n_rounds: int, turn_s: float) -> dict[str, Any]:
    """Every turn of both servers, by kind, and what is different about the processes."""
    load = os.getloadavg()[0]
    with collecting() as address, contextlib.ExitStack() as stack:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "NO_PROXY": "127.0.0.1"}
        servers = {
            name: stack.enter_context(serving("-np", "1", *flags, env=env))
            for name, flags in (("off", ()), ("on", ("--traces",)))
        }
        turns: dict[str, dict[str, list[Turn]]] = {}
        for kind, body in _KINDS.items():
            turns[kind] = {name: [] for name in servers}
            for server in servers.values():
                turn(server, body, 1)
            for n in range(n_rounds):
                for name in sorted(servers, reverse=bool(n % 2)):
                    turns[kind][name].append(turn(servers[name], body, turn_s))
        spans = {
            result: servers["on"].metric(f'unpaced_spans_total{{result="{result}"}}')
            for result in ("sent", "lost")
        }
        processes = {
            name: {
                "resident_mib": round(server.metric("process_resident_memory_bytes") / 2**20, 1),
                "threads": len(list(Path(f"/proc/{server.process.pid}/task").iterdir())),
            }
            for name, server in servers.items()
        }
    return {
        "hardware": describe_hardware(),
        "load": load,
        "rounds": n_rounds,
        "turn_s": turn_s,
        "turns": turns,
        "spans": spans,
        "processes": processes,
    }


def page_of(result: dict[str, Any]) -> str:
    """docs/bench/traces.md."""
    rows = []
    for kind, turns in result["turns"].items():
        for figure in turns["off"][0]:
            if ("request" in figure) == (kind == "requests of 8 tokens"):
                off, on = (median(turn[figure] for turn in turns[name]) for name in ("off", "on"))
                ratio = median(
                    b[figure] / a[figure] for a, b in zip(turns["off"], turns["on"], strict=True)
                )
                word = figure.replace("_us", " µs").replace("_", " ")
                rows.append(f"| {kind} | {word} | {off:.1f} | {on:.1f} | {ratio:.3f} |")
    off, on = result["processes"]["off"], result["processes"]["on"]
    return _PAGE.format(rows_of_table="\n".join(rows), off=off, on=on, **result)


def main() -> None:
    """Print the page; with --out write traces.md and results/traces.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operating.bench_traces")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = measure(given.rounds, given.seconds)
    print(page_of(result))
    if given.out is not None:
        save_figures(given.out, "traces", result)
        (given.out / "traces.md").write_text(page_of(result))


if __name__ == "__main__":
    main()
