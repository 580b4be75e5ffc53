#!/usr/bin/env python3
"""Ring and wake-up: records a second, loss and order, round trip, latency to asyncio.

The measured code is csrc/base/spsc_ring.h and csrc/base/wakeup.*, compiled here with
rig/bench_ring.cpp into a library of its own. Records are the engine's 64-byte TokenEvent; the
reader checks every one of them. Latency is from the writer's clock reading before its first push to
the first line of the callback that loop.add_reader() runs; the writer paces itself like a decode
thread and sits on the last core, the loop on the others, as in the engine."""

import argparse
import asyncio
import ctypes
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.ring_library import compile_library

MUST_RECORDS_PER_S = 50e6
MUST_WAKE_UP_P50_US = 100.0
MUST_WRITES_PER_BURST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run between two threads."""

    calls: str
    n_records: int
    records_per_s: float
    seconds: float
    n_lost: int
    n_reordered: int
    n_torn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """Latency of the wake-up in microseconds, eventfd writes by bursts."""

    loop: str
    burst: int
    interval_us: int
    n_bursts: int
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    writes_per_burst: float
    n_out_of_order: int


def percentile(values: list[float], share: float) -> float:
    """Of the sorted `values`, the one below which `share` of them lie."""
    return values[min(len(values) - 1, int(share * len(values)))]


def measure_throughput(
    native: ctypes.CDLL, n_records: int, burst: int, capacity: int, cores: list[int]
) -> Throughput:
    """One run; the writer on the last core, the reader on the first."""
    result = native.bench_throughput(n_records, burst, capacity, cores[-1], cores[0])
    return Throughput(
        calls="try_push, try_pop" if burst == 1 else f"try_push_many, pop_many of up to {burst}",
        n_records=n_records,
        records_per_s=n_records / result.seconds,
        seconds=result.seconds,
        n_lost=result.n_lost,
        n_reordered=result.n_reordered,
        n_torn=result.n_torn,
    )


def median_throughput(
    native: ctypes.CDLL, n_records: int, burst: int, capacity: int, cores: list[int], n_runs: int
) -> Throughput:
    """The run of median speed."""
    runs = [measure_throughput(native, n_records, burst, capacity, cores) for _ in range(n_runs)]
    return sorted(runs, key=lambda run: run.records_per_s)[n_runs // 2]


def measure_round_trips(native: ctypes.CDLL, n: int, cores: list[int]) -> dict[str, float]:
    """Both sides spin: push, pop, push back, pop."""
    nanoseconds = (ctypes.c_int64 * n)()
    native.bench_round_trips(n, cores[0], cores[-1], nanoseconds)
    values = sorted(float(value) for value in nanoseconds)
    return {
        "n": n,
        "mean_ns": statistics.fmean(values),
        "p50_ns": percentile(values, 0.50),
        "p99_ns": percentile(values, 0.99),
        "clock_ns": native.bench_clock_ns(1_000_000),
    }


async def receive(
    native: ctypes.CDLL, writer: int, n_records: int, latencies_ns: list[int]
) -> None:
    """Reads with add_reader() until all records have come."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    on_readable: Callable[[int, int], int] = native.paced_writer_on_readable

    def callback() -> None:
        woken_ns = time.monotonic_ns()
        latency_ns = on_readable(writer, woken_ns)
        if latency_ns >= 0:
            latencies_ns.append(latency_ns)
        if native.paced_writer_n_read(writer) == n_records and not done.done():
            done.set_result(None)

    fd = native.paced_writer_fd(writer)
    loop.add_reader(fd, callback)
    callback()  # the first park
    await asyncio.wait_for(done, 600)
    loop.remove_reader(fd)


def measure_wake_up(
    native: ctypes.CDLL, loop: str, burst: int, interval_us: int, n_bursts: int, cores: list[int]
) -> WakeUp:
    """`n_bursts` bursts at a pace, read by an event loop."""
    latencies_ns: list[int] = []
    os.sched_setaffinity(0, cores[:-1] or cores)
    writer = native.paced_writer_start(n_bursts, burst, interval_us * 1000, cores[-1])
    try:
        coroutine = receive(native, writer, n_bursts * burst, latencies_ns)
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(coroutine)
        values = sorted(latency / 1000 for latency in latencies_ns)
        return WakeUp(
            loop=loop,
            burst=burst,
            interval_us=interval_us,
            n_bursts=n_bursts,
            p50_us=percentile(values, 0.50),
            p90_us=percentile(values, 0.90),
            p99_us=percentile(values, 0.99),
            max_us=values[-1],
            writes_per_burst=native.paced_writer_n_writes(writer) / n_bursts,
            n_out_of_order=native.paced_writer_n_out_of_order(writer),
        )
    finally:
        native.paced_writer_join(writer)
        os.sched_setaffinity(0, cores)


def verdicts(
    throughputs: list[Throughput], long_run: Throughput, wake_ups: list[WakeUp]
) -> dict[str, bool]:
    """What must hold."""
    return {
        "records_per_s >= 50e6": max(run.records_per_s for run in throughputs)
        >= MUST_RECORDS_PER_S,
        "0 lost, reordered or torn": all(
            run.n_lost + run.n_reordered + run.n_torn == 0 for run in [*throughputs, long_run]
        )
        and all(run.n_out_of_order == 0 for run in wake_ups),
        "wake-up p50 <= 100 us": all(run.p50_us <= MUST_WAKE_UP_P50_US for run in wake_ups),
        "eventfd writes <= 1 a burst": all(
            run.writes_per_burst <= MUST_WRITES_PER_BURST for run in wake_ups
        ),
    }


def as_markdown(
    hardware: str,
    command: str,
    throughputs: list[Throughput],
    long_run: Throughput,
    round_trip: dict[str, float],
    wake_ups: list[WakeUp],
    must_hold: dict[str, bool],
) -> str:
    """docs/bench/ring.md."""
    lines = [
        "# Ring and wake-up",
        "",
        f"{hardware}. `{command}`",
        "",
        "64-byte `TokenEvent` records between two pinned threads; the reader checks every record.",
        "Ring of 4096 records, median of the runs.",
        "",
        "| calls | records/s | lost | reordered | torn |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {run.calls} | {run.records_per_s / 1e6:.1f} M | {run.n_lost} | {run.n_reordered} "
        f"| {run.n_torn} |"
        for run in throughputs
    ]
    lines += [
        "",
        f"Long run, {long_run.calls}: {long_run.n_records:,} records in {long_run.seconds:.1f} s "
        f"({long_run.records_per_s / 1e6:.1f} M/s), {long_run.n_lost} lost, "
        f"{long_run.n_reordered} reordered, {long_run.n_torn} torn.",
        "",
        f"Round trip through two rings, both sides spinning: mean {round_trip['mean_ns']:.0f} ns, "
        f"p50 {round_trip['p50_ns']:.0f} ns, p99 {round_trip['p99_ns']:.0f} ns (of which the "
        f"clock {round_trip['clock_ns']:.0f} ns).",
        "",
        "## From the push on a native thread to the callback of `loop.add_reader()`",
        "",
        "| loop | records a burst | pace, us | p50, us | p90, us | p99, us | max, us "
        "| eventfd writes a burst |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {run.loop} | {run.burst} | {run.interval_us} | {run.p50_us:.1f} | {run.p90_us:.1f} "
        f"| {run.p99_us:.1f} | {run.max_us:.0f} | {run.writes_per_burst:.4f} |"
        for run in wake_ups
    ]
    lines += ["", "## Must hold", ""]
    lines += [f"- {name}: {'yes' if holds else 'NO'}" for name, holds in must_hold.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000, help="of each short run")
    parser.add_argument("--long", type=int, default=1_000_000_000, help="records of the long run")
    parser.add_argument("--bursts", type=int, default=5_000, help="of each wake-up measurement")
    parser.add_argument("--out", type=Path, help="folder for results/ring.json and ring.md")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        native = compile_library(Path(folder))
        throughputs = [
            median_throughput(native, arguments.records, burst, 4096, cores, 5)
            for burst in (1, 8, 64, 256)
        ]
        round_trip = measure_round_trips(native, 1_000_000, cores)
        wake_ups = [
            measure_wake_up(native, loop, burst, interval_us, arguments.bursts, cores)
            for loop in ("uvloop", "asyncio")
            for burst, interval_us in ((1, 1000), (1, 4000), (16, 1000))
        ]
        long_run = measure_throughput(native, arguments.long, 1, 4096, cores)
    must_hold = verdicts(throughputs, long_run, wake_ups)
    hardware = describe_hardware()
    command = (
        f"python -m tests.bench.bench_ring --records {arguments.records} "
        f"--long {arguments.long} --bursts {arguments.bursts}"
    )
    report = {
        "hardware": hardware,
        "command": command,
        "throughput": [asdict(run) for run in throughputs],
        "long_run": asdict(long_run),
        "round_trip": round_trip,
        "wake_up": [asdict(run) for run in wake_ups],
        "must_hold": must_hold,
    }
    markdown = as_markdown(
        hardware, command, throughputs, long_run, round_trip, wake_ups, must_hold
    )
    print(markdown)
    if arguments.out is not None:
        save_figures(arguments.out, "ring", report)
        (arguments.out / "ring.md").write_text(markdown)
    if not all(must_hold.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
