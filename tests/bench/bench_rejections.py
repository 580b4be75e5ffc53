#!/usr/bin/env python3
"""What a full queue costs: how long a client waits for its 503, and the server's CPU for it.

So many clients at once, each on a connection of its own, ask again as soon as they are refused;
one slot decodes all the time. `python -m tests.bench.bench_rejections` on a quiet machine.
"""

import argparse
import json
import selectors
import socket
import time
from contextlib import ExitStack
from typing import Any, Final

import orjson

from tests.bench.rig.hardware import describe_hardware
from tests.support.raw_http import connect
from tests.support.server import Server, serving

_ENDLESS: Final = {"prompt": "a", "n_predict": -1, "ignore_eos": True}
_BODY: Final = orjson.dumps({"prompt": "Once upon a time", "n_predict": 16, "stream": True})
_REQUEST: Final = (
    b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
)


def reject(server: Server, n_clients: int, n_requests: int) -> list[float]:
    """Seconds that each of the rejections took."""
    took: list[float] = []
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        sent: dict[socket.socket, float] = {}

        def ask(connection: socket.socket) -> None:
            connection.sendall(_REQUEST)
            sent[connection] = time.monotonic()

        for _ in range(n_clients):
            connection = stack.enter_context(connect(server.port))
            ready.register(connection, selectors.EVENT_READ)
            ask(connection)
        while len(took) < n_requests:
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                answer = _read_answer(key.fileobj)
                took.append(time.monotonic() - sent[key.fileobj])
                if not answer.startswith(b"HTTP/1.1 503"):
                    raise RuntimeError(f"no rejection: {answer[:200]!r}")
                ask(key.fileobj)
    return took


def _read_answer(connection: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}}") and (piece := connection.recv(65536)):
        answer += piece
    return answer


def measure(n_clients: int, n_requests: int, flags: list[str]) -> dict[str, Any]:
    """One number of clients on a server of its own."""
    queue = ("-np", "1", "--max-queue-requests", "0", "-t", "1", "--context-shift")
    with (
        serving(*queue, *flags) as server,
        server.open_request("/completion", **_ENDLESS),
    ):
        server.until(lambda: server.metric("unpaced_requests_running") == 1)
        reject(server, n_clients, n_requests // 10)
        main, before = server.process.pid, server.process.thread_cpu_s()
        took = sorted(reject(server, n_clients, n_requests))
        after = server.process.thread_cpu_s()
        rest = sum(after.values()) - sum(before.values()) - (after[main] - before[main])
        return {
            "n_clients": n_clients,
            "p50_ms": round(took[len(took) // 2] * 1e3, 2),
            "p99_ms": round(took[len(took) * 99 // 100] * 1e3, 2),
            "longest_ms": round(took[-1] * 1e3, 2),
            "front_end_cpu_us": round((after[main] - before[main]) / len(took) * 1e6),
            "other_threads_cpu_s": round(rest, 2),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--n", type=int, default=4000, help="rejections")
    parser.add_argument("flags", nargs="*", help="of the server")
    options = parser.parse_args()
    found = [measure(n, options.n, options.flags) for n in options.clients]
    print(json.dumps({"hardware": describe_hardware(), "rejections": found}, indent=1))


if __name__ == "__main__":
    main()
