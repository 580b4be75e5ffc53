#!/usr/bin/env python3
"""How long `unpaced --version`, a start until /health says 200, and SIGTERM until the exit take.

Demo model, nothing else: `python -m tests.bench.bench_startup --out docs/bench`. Wall times are
those of a client on the same machine; CPU is the server's own, until /health says 200. What the
machine's load average was is in the result: beside other work a wall time says little.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import free_port

UNPACED = str(Path(sys.executable).with_name("unpaced"))
LABELS = {
    "version_s": "`unpaced --version`, s",
    "health_s": "process start to /health 200, s",
    "health_cpu_s": "the server's CPU until then, s",
    "exit_s": "SIGTERM to exit, idle, s",
}
LIMITS = {"version_s": 0.3, "health_s": 1.5, "exit_s": 1.0}


def time_version(program: str) -> float:
    """Seconds of `unpaced --version`."""
    started = time.monotonic()
    subprocess.run([program, "--version"], check=True, capture_output=True)
    return time.monotonic() - started


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_healthy(port: int) -> bool:
    """Whether GET /health is 200 now."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def environment() -> dict[str, str]:
    """Ours, with compiled modules kept, as an installation has them: compiling them is no part of
    every start."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def time_server(program: str = UNPACED) -> dict[str, float]:
    """One start and one orderly end of an idle server."""
    port = free_port()
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        process = subprocess.Popen([program, "--port", str(port)], stderr=log, env=environment())
        try:
            while not is_healthy(port):
                if process.poll() is not None or time.monotonic() - started > 60:
                    raise RuntimeError("the server did not start")
                time.sleep(0.005)
            health, cpu = time.monotonic() - started, cpu_s(process.pid)
            time.sleep(0.5)
            stopping = time.monotonic()
            process.terminate()
            process.wait(30)
            ended = time.monotonic() - stopping
        finally:
            process.kill()
            process.wait()
    return {"health_s": health, "health_cpu_s": cpu, "exit_s": ended}


def measure(n: int, programs: Sequence[str]) -> list[dict[str, list[float]]]:
    """`n` times each, in turns, after a start that compiles what is not compiled yet."""
    for program in programs:
        time_server(program)
    found: list[dict[str, list[float]]] = [{name: [] for name in LABELS} for _ in programs]
    for _ in range(n):
        for program, samples in zip(programs, found, strict=True):
            samples["version_s"].append(time_version(program))
            for name, value in time_server(program).items():
                samples[name].append(value)
    return found


def table_of(samples: dict[str, list[float]]) -> str:
    """A line a figure."""
    lines = ["| | best | median | worst | wanted |", "|---|---|---|---|---|"]
    for name, label in LABELS.items():
        values = samples[name]
        wanted = f"< {LIMITS[name]}" if name in LIMITS else ""
        lines.append(
            f"| {label} | {min(values):.2f} | {statistics.median(values):.2f} | "
            f"{max(values):.2f} | {wanted} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print a table; with --out write results/startup.json and startup.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside", help="another build's `unpaced`, measured in turns with ours")
    given = parser.parse_args()
    load_before = os.getloadavg()[0]
    programs = [UNPACED] if given.beside is None else [UNPACED, given.beside]
    samples, *other = measure(given.n, programs)
    result = {
        "hardware": describe_hardware(),
        "load_average_before": round(load_before, 2),
        "n": given.n,
        "samples": {name: [round(v, 3) for v in values] for name, values in samples.items()},
    }
    table = table_of(samples)
    print(table)
    if other:
        print(f"\n{given.beside}:\n\n{table_of(other[0])}")
    if given.out is not None:
        save_figures(given.out, "startup", result)
        (given.out / "startup.md").write_text(
            "# Start and end\n\n"
            f"`python -m tests.bench.bench_startup -n {given.n} --out docs/bench`, demo model, "
            f"{result['hardware']}.\n"
            f"Load average when it began: {result['load_average_before']}.\n\n{table}\n"
        )


if __name__ == "__main__":
    main()
