#!/usr/bin/env python3
"""Many requests one after another: memory, threads and descriptors must not grow.

Memory is RssAnon + VmSwap of the server process, sampled every few requests; the slope is a
least-squares fit over the second half: until then pages of the heap are touched for the first
time. Prompts differ, some requests are streamed, some are cut by the client.
"""

import argparse
import json
import socket
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion


def resources(server: ServerProcess) -> dict[str, int]:
    """Anonymous memory in bytes, threads, open descriptors."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
    )
    kib = int(status["RssAnon"].split()[0]) + int(status["VmSwap"].split()[0])
    return {
        "memory_bytes": kib * 1024,
        "n_threads": int(status["Threads"]),
        "n_descriptors": len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
    }


def post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """One plain request."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        parsed: dict[str, Any] = json.load(answer)
        return parsed


def abandon(port: int, body: dict[str, Any]) -> None:
    """A client that leaves after the first bytes of its stream."""
    payload = json.dumps({**body, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(payload) + payload
        )
        connection.recv(200)


def one_request(port: int, i: int) -> None:
    """The i-th of a fixed mixture."""
    body = {"prompt": f"Story number {i}: once upon a time", "seed": i}
    if i % 10 == 7:
        abandon(port, {**body, "max_tokens": 500})
    elif i % 3 == 0:
        stream_completion(port, {**body, "n_predict": 24})
    else:
        post(port, "/v1/completions", {**body, "max_tokens": 24, "logprobs": 3, "stop": ["zzz"]})


def slope(samples: list[dict[str, int]], field: str) -> float:
    """Least-squares growth of `field` a request."""
    kept = samples[len(samples) // 2 :]
    mean_x = sum(s["n_requests"] for s in kept) / len(kept)
    mean_y = sum(s[field] for s in kept) / len(kept)
    top = sum((s["n_requests"] - mean_x) * (s[field] - mean_y) for s in kept)
    return top / sum((s["n_requests"] - mean_x) ** 2 for s in kept)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=6000, help="requests")
    parser.add_argument("--out", type=Path, help="folder for results/soak.json")
    arguments = parser.parse_args()
    port = free_port()
    log = Path(tempfile.gettempdir()) / "bench-soak.log"
    samples: list[dict[str, int]] = []
    with running(unpaced_command(port, DEMO, "-t", "1"), {}, port, log) as server:
        for i in range(arguments.n + 1):
            if i % 20 == 0:
                samples.append({"n_requests": i, **resources(server)})
            one_request(port, i)
    report = {
        "command": f"python -m tests.bench.bench_soak --n {arguments.n}",
        "hardware": describe_hardware(),
        "memory_bytes_per_request": slope(samples, "memory_bytes"),
        "middle": samples[len(samples) // 2],
        "last": samples[-1],
        "samples": samples,
    }
    print(json.dumps({key: report[key] for key in report if key != "samples"}, indent=1))
    if arguments.out is not None:
        save_figures(arguments.out, "soak", report)


if __name__ == "__main__":
    main()
