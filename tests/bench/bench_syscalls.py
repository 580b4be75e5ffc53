#!/usr/bin/env python3
"""System calls of the decode thread while it decodes: strace -c on that thread alone.

Expected: `write` and `futex` (the wake-up of the event loop, or of the thread that sends frames, at
most one a token), and with more than one thread the `futex` calls of ggml's own pool. Needs strace
and the right to trace a child.
"""

import argparse
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO, request_body
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


def thread_id(server: ServerProcess, name: str) -> int:
    """Id of the server's thread of that name."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise RuntimeError(f"the server has no thread named {name}")


def count_syscalls(server: ServerProcess, n_tokens: int) -> dict[str, int]:
    """Calls by name that the decode thread made during one streamed request."""
    with tempfile.NamedTemporaryFile("r") as summary:
        command = ["strace", "-c", "-p", str(thread_id(server, "decode")), "-o", summary.name]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(1)  # until it is attached
        # The first wait for work was entered before the tracer came, so it is not in the table.
        timing = stream_completion(server.port, request_body(n_tokens, 1))
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
        if timing.n_tokens != n_tokens:
            raise RuntimeError(f"{timing.n_tokens} tokens instead of {n_tokens}")
        rows = [ROW.match(line) for line in summary.read().splitlines()]
    return {row[2]: int(row[1]) for row in rows if row and row[2] != "total"}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="folder for results/syscalls.json")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    for n_threads in arguments.threads:
        port = free_port()
        command = unpaced_command(port, arguments.model, "-c", "2048", "-t", str(n_threads))
        log = Path(tempfile.gettempdir()) / "bench-syscalls.log"
        with running(command, {}, port, log) as server:
            counts = count_syscalls(server, arguments.n)
        results.append({"n_threads": n_threads, "n_tokens": arguments.n, "calls": counts})
        print(f"{n_threads} thread(s), {arguments.n} tokens: {counts}")
    if arguments.out is not None:
        report = {
            "command": f"python -m tests.bench.bench_syscalls --n {arguments.n}",
            "hardware": describe_hardware(),
            "results": results,
        }
        save_figures(arguments.out, "syscalls", report)


if __name__ == "__main__":
    main()
