"""A scrape of /metrics under load: how long it takes, what it computes, for how long it holds the
event loop.

`python -m tests.bench.operating.bench_scrape [-n N] [--out docs/bench]`. Three measurements: N
scrapes of a server that streams all the time, by the clock of who scrapes; the server's processor
time for N scrapes while it does nothing else; and the same application in this process, on the real
engine, whose event loop turns as fast as it can and says how long each turn took.
"""

import argparse
import asyncio
import contextlib
import http.client
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import uvloop

from tests.bench.rig.front_end_cpu import front_end_cpu_s
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.support.server import Server, serving
from unpaced.cluster.replica_app import read_flags
from unpaced.metrics.page import MetricsPage
from unpaced.process.app import create_app
from unpaced.process.early_load import EarlyLoad

_BODY: Final = {"prompt": "Once", "n_predict": 900, "ignore_eos": True, "stream": True}
_FLAGS: Final = {"default": (), "both names": ("--metrics-compat", "llamacpp,vllm")}
_PAUSE_S: Final = 0.02
_STREAMER: Final = """
import http.client, sys
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
while True:
    client.request("POST", "/completion", sys.argv[2], {"Content-Type": "application/json"})
    client.getresponse().read()
"""

_PAGE: Final = """# A scrape

`python -m tests.bench.operating.bench_scrape -n {n} --out docs/bench`, demo model,
{hardware}.

{n} scrapes of each: {sizes}.
CPU is that of all threads of the server but the decode thread, HTTP included. The load average was
{load:.1f} when it began.

| `--metrics-compat` | ms | median | 95 % | 99 % | worst |
|---|---|---|---|---|---|
{rows}

* The first line of each is what a Prometheus would wait while another client streams without a
  pause: the stream's turns of the event loop, its client and the scraper share a core with the
  page's making. The second is of requests in turn with the scrapes, which make no page: what HTTP,
  that core and the machine cost anybody.
* The processor time is that of the thread that makes the page, whatever else runs.
* The turns are those of the same application in the program's own process, whose event loop does
  nothing but turn. The thread that makes the page gives the interpreter back after half a
  millisecond at most (`sys.setswitchinterval`); without a scrape a
  turn takes what the machine takes.
"""


@contextlib.contextmanager
def streaming(port: int) -> Iterator[None]:
    """Another process that streams one answer after the other."""
    command = [sys.executable, "-c", _STREAMER, str(port), orjson.dumps(_BODY).decode()]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.5)
            yield
        finally:
            process.kill()


def times_s(server: Server, n: int) -> dict[str, list[float]]:
    """From the request to the last byte, on one connection: scrapes, and in turn with them
    requests that ask for next to nothing."""
    client = http.client.HTTPConnection("127.0.0.1", server.port)
    times: dict[str, list[float]] = {"/metrics": [], "/health/live": []}
    for _ in range(n):
        for path, taken in times.items():
            began_s = time.perf_counter()
            client.request("GET", path)
            text = client.getresponse().read()
            taken.append(time.perf_counter() - began_s)
            assert b"unpaced_engine_steps_total" in text or path != "/metrics"
            time.sleep(_PAUSE_S)
    client.close()
    return times


def cpu_s_of_scrapes(server: Server, n: int) -> float:
    """The server's processor time for one, of n without a pause."""
    client = http.client.HTTPConnection("127.0.0.1", server.port)
    cpu_s = front_end_cpu_s(server.process)
    for _ in range(n):
        client.request("GET", "/metrics")
        client.getresponse().read()
    client.close()
    return (front_end_cpu_s(server.process) - cpu_s) / n


async def in_process_s(flags: str, n: int) -> dict[str, list[float]]:
    """Of each of n scrapes the longest turn of the event loop meanwhile, the same of n pauses, and
    the processor time of making the page."""
    settings = read_flags(flags, 1)
    load = EarlyLoad(settings)
    app = create_app(load.engine, settings)
    seen: dict[str, list[float]] = {"scrape": [], "pause": [], "making": []}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client,
    ):
        await app.state.loaded
        page: MetricsPage = app.state.metrics_page
        probe = _Probe()
        asyncio.get_running_loop().call_soon(probe.turn)
        for _ in range(n):
            probe.begin()
            answer = await client.get("/metrics")
            seen["scrape"].append(probe.longest_s)
            assert answer.status_code == 200
            probe.begin()
            await asyncio.sleep(0.003)
            seen["pause"].append(probe.longest_s)
            began_s = time.thread_time()
            page.render()
            seen["making"].append(time.thread_time() - began_s)
        probe.is_over = True
    return seen


class _Probe:
    """Turns with the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.is_over = False
        self._last_s = time.perf_counter()

    def begin(self) -> None:
        """Forget what was."""
        self.longest_s = 0.0
        self._last_s = time.perf_counter()

    def turn(self) -> None:
        """Once each turn."""
        now_s = time.perf_counter()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        if not self.is_over:
            asyncio.get_running_loop().call_soon(self.turn)


def spread_ms(times_s: list[float]) -> dict[str, float]:
    """Milliseconds: median, 95 %, 99 %, worst."""
    times = sorted(1e3 * s for s in times_s)
    places = {"median": 0.5, "p95": 0.95, "p99": 0.99, "worst": 1.0}
    return {
        name: round(times[min(len(times) - 1, int(part * len(times)))], 3)
        for name, part in places.items()
    }


def measure(n: int) -> dict[str, Any]:
    """Everything, by flags."""
    report: dict[str, Any] = {
        "hardware": describe_hardware(),
        "load": os.getloadavg()[0],
        "n": n,
        "flags": {},
    }
    for name, flags in _FLAGS.items():
        with serving("-np", "1", *flags) as server:
            page = server.client.get("/metrics").text
            cpu_s = cpu_s_of_scrapes(server, n)
            with streaming(server.port):
                wall = {path: spread_ms(taken) for path, taken in times_s(server, n).items()}
        inside = uvloop.run(in_process_s(" ".join(flags), n))
        report["flags"][name] = {
            "lines": page.count("\n"),
            "bytes": len(page),
            "cpu_ms": round(cpu_s * 1e3, 3),
            "wall_ms": wall,
            "inside_ms": {each: spread_ms(times) for each, times in inside.items()},
        }
    return report


def page_of(report: dict[str, Any]) -> str:
    """docs/bench/scrape.md."""
    rows = []
    for name, told in report["flags"].items():
        told_of = {
            "scrape under a stream": told["wall_ms"]["/metrics"],
            "`GET /health/live` under it": told["wall_ms"]["/health/live"],
            "processor time of making the page": told["inside_ms"]["making"],
            "longest turn during a scrape": told["inside_ms"]["scrape"],
            "longest turn in 3 ms without": told["inside_ms"]["pause"],
        }
        for what, ms in told_of.items():
            figures = " | ".join(f"{ms[part]:.2f}" for part in ("median", "p95", "p99", "worst"))
            rows.append(f"| {name} | {what} | {figures} |")
    sizes = "; ".join(
        f"{name}: {told['lines']} lines, {told['bytes']} bytes, {told['cpu_ms']:.2f} ms of CPU"
        for name, told in report["flags"].items()
    )
    return _PAGE.format(sizes=sizes, rows="\n".join(rows), **report)


def main() -> None:
    """Print the page; with --out write scrape.md and results/scrape.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operating.bench_scrape")
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    report = measure(given.n)
    print(page_of(report))
    if given.out is not None:
        save_figures(given.out, "scrape", report)
        (given.out / "scrape.md").write_text(page_of(report))


if __name__ == "__main__":
    main()
