#!/usr/bin/env python3
"""What an event costs on its way out, by the way it is sent.

A real uvicorn process (uvloop, httptools); the client reads and throws away. CPU is the server's
main thread's, all of it: loop, response, uvicorn, system calls. The ways take turns; medians.
"""

import argparse
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running
from tests.bench.rig.sse_app import EVENT

WAYS = ("token_path", "raw", "streaming_response", "sse_starlette", "sse_starlette_send_timeout")


def measure(server: ServerProcess, way: str, n: int) -> tuple[float, float]:
    """CPU microseconds an event, and events a second."""
    cpu, started = server.thread_cpu_s()[server.pid], time.perf_counter()
    n_bytes = 0
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{way}?n={n}") as response:
        while chunk := response.read1(1 << 20):
            n_bytes += len(chunk)
    seconds = time.perf_counter() - started
    if n_bytes != n * len(EVENT):
        raise RuntimeError(f"{way}: {n_bytes} bytes, not {n * len(EVENT)}")
    return (server.thread_cpu_s()[server.pid] - cpu) / n * 1e6, n / seconds


def markdown(report: dict[str, Any]) -> str:
    """docs/bench/sse.md."""
    lines = [
        "# What a streamed event costs, by the way it is sent",
        "",
        "One event a turn of the event loop, real uvicorn process, client on the same machine.",
        "CPU of the server's main thread, system calls included.",
        "",
        f"    {report['command']}",
        "",
        f"Hardware: {report['hardware']}",
        "",
        "| way | CPU µs/event (min … max) | events/s |",
        "|---|---|---|",
    ]
    for way, row in report["ways"].items():
        lines.append(
            f"| {way} | {row['cpu_us']:.1f} ({row['cpu_us_min']:.1f} … {row['cpu_us_max']:.1f}) "
            f"| {row['events_per_s']:.0f} |"
        )
    token_path, raw = report["ways"]["token_path"], report["ways"]["raw"]
    sse = report["ways"]["sse_starlette_send_timeout"]
    lines += [
        "",
        "Of a budget of 25 µs a token for the whole front end, sse-starlette with pings and a send",
        f"timeout takes {sse['cpu_us']:.1f} µs; raw ASGI messages with the same two guarantees "
        f"{raw['cpu_us']:.1f} µs; chunks",
        "written to the connection from the engine's wake-up, which is how a stream with one "
        "choice goes",
        f"(server/completion/streaming.py), {token_path['cpu_us']:.1f} µs. sse-starlette carries "
        "the streams with several choices.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000, help="events a measurement")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="folder for results/sse.json and sse.md")
    arguments = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.rig.sse_app", str(port)]
    measured: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(command, {}, port, Path(scratch) / "log") as server,
    ):
        for way in WAYS:
            measure(server, way, 1000)
        for _ in range(arguments.repeats):
            for way in WAYS:
                measured[way].append(measure(server, way, arguments.n))
    report = {
        "command": f"python -m tests.bench.bench_sse --n {arguments.n} "
        f"--repeats {arguments.repeats}",
        "hardware": describe_hardware(),
        "ways": {
            way: {
                "cpu_us": statistics.median(cpu for cpu, _ in rounds),
                "cpu_us_min": min(cpu for cpu, _ in rounds),
                "cpu_us_max": max(cpu for cpu, _ in rounds),
                "events_per_s": statistics.median(rate for _, rate in rounds),
            }
            for way, rounds in measured.items()
        },
    }
    print(markdown(report))
    if arguments.out is not None:
        save_figures(arguments.out, "sse", report)
        (arguments.out / "sse.md").write_text(markdown(report))


if __name__ == "__main__":
    main()
