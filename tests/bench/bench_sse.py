#!/usr/bin/env python3
"""What an event and a stream cost on their way out, by the way they are sent.

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
from tests.support.raw_http import connect

WAYS = ("token_path", "raw", "streaming_response", "sse_starlette", "sse_starlette_alone")
N_STREAMS = 500
# What follows the table.
_WHY = """
Two of these send streams here (unpaced/completion/streaming.py), the same bytes in the same
surroundings: pings, disconnects, send deadlines and drain exist once, around both
(unpaced/http/event_stream.py). `sse_starlette` carries several choices. One choice, the usual
stream, is `token_path`: chunks written to the connection from the engine's wake-up. That saves
{saved[cpu_us]:.1f} of {sse[cpu_us]:.1f} µs of CPU a token (of a budget of 25 µs for the whole front
end) and {saved[stream_cpu_us]:.0f} of {sse[stream_cpu_us]:.0f} µs a stream; an event that is there
at once comes {saved[first_event_us]:.0f} µs sooner. An event that is made in Python (stop strings,
probabilities, calls of tools) costs as much more by sse-starlette as one that is not, so every
stream of one choice goes past it. `sse_starlette_alone` has pings and a send timeout of its own,
`raw` is ASGI messages without a library.
"""


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


def measure_streams(server: ServerProcess, way: str) -> tuple[float, float]:
    """CPU microseconds of a stream with one event, and microseconds until that has come."""
    request = f"GET /{way}?n=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    waits = []
    cpu = server.thread_cpu_s()[server.pid]
    with connect(server.port) as connection:
        for _ in range(N_STREAMS):
            started = time.perf_counter()
            connection.sendall(request)
            answer = connection.recv(65536)
            while b"data:" not in answer:
                answer += connection.recv(65536)
            waits.append(time.perf_counter() - started)
            while not answer.endswith(b"0\r\n\r\n"):
                answer += connection.recv(65536)
    cpu = server.thread_cpu_s()[server.pid] - cpu
    return cpu / N_STREAMS * 1e6, statistics.median(waits) * 1e6


def row_of(events: list[tuple[float, float]], streams: list[tuple[float, float]]) -> dict[str, Any]:
    """The figures of one way."""
    return {
        "cpu_us": statistics.median(cpu for cpu, _ in events),
        "cpu_us_min": min(cpu for cpu, _ in events),
        "cpu_us_max": max(cpu for cpu, _ in events),
        "events_per_s": statistics.median(rate for _, rate in events),
        "stream_cpu_us": statistics.median(cpu for cpu, _ in streams),
        "first_event_us": statistics.median(wait for _, wait in streams),
    }


def markdown(report: dict[str, Any]) -> str:
    """docs/bench/sse.md."""
    lines = [
        "# What a streamed event costs, by the way it is sent",
        "",
        "One event a turn of the event loop, real uvicorn process, client on the same machine.",
        "CPU of the server's main thread, system calls included. A stream of one event, on a "
        "connection",
        "that is kept: its CPU, and how long the client waits for the event.",
        "",
        f"    {report['command']}",
        "",
        f"Hardware: {report['hardware']}",
        "",
        "| way | CPU µs/event (min … max) | events/s | CPU µs/stream | first event µs |",
        "|---|---|---|---|---|",
    ]
    for way, row in report["ways"].items():
        lines.append(
            f"| {way} | {row['cpu_us']:.1f} ({row['cpu_us_min']:.1f} … {row['cpu_us_max']:.1f}) "
            f"| {row['events_per_s']:.0f} "
            f"| {row['stream_cpu_us']:.0f} | {row['first_event_us']:.0f} |"
        )
    direct, sse = report["ways"]["token_path"], report["ways"]["sse_starlette"]
    saved = {name: sse[name] - direct[name] for name in sse}
    return "\n".join(lines) + "\n" + _WHY.format(sse=sse, saved=saved)


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
    streams: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(command, {}, port, Path(scratch) / "log") as server,
    ):
        for way in WAYS:
            measure(server, way, 1000)
        for _ in range(arguments.repeats):
            for way in WAYS:
                measured[way].append(measure(server, way, arguments.n))
                streams[way].append(measure_streams(server, way))
    report = {
        "command": f"python -m tests.bench.bench_sse --n {arguments.n} "
        f"--repeats {arguments.repeats}",
        "hardware": describe_hardware(),
        "ways": {way: row_of(measured[way], streams[way]) for way in WAYS},
    }
    print(markdown(report))
    if arguments.out is not None:
        save_figures(arguments.out, "sse", report)
        (arguments.out / "sse.md").write_text(markdown(report))


if __name__ == "__main__":
    main()
