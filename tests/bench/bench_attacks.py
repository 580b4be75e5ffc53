#!/usr/bin/env python3
"""What others notice while one client attacks: a stream's longest gap, /health/live, memory.

`python -m tests.bench.bench_attacks [NAME ...]` on a quiet machine; exit status 1 if an attack
breaks a bound. Attacks run for `--seconds` each, on a server of their own with the demo model.
"""

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

from tests.bench.rig.hardware import describe_hardware
from tests.support.bystander import Memory, watching
from tests.support.raw_http import CHUNKED, HEAD, connect, send_until_refused
from tests.support.server import Server, serving

GAP_MS: Final = 250.0
HEALTH_MS: Final = 100.0
GROWN_BYTES: Final = 64 << 20
BIG: Final = {"content": "a b " * 400_000, "with_pieces": True}
Attack = Callable[[Server], None]


def send_trailers(server: Server) -> None:
    """Trailers until the connection is refused."""
    with connect(server.port) as connection, suppress(OSError):
        connection.sendall(HEAD + CHUNKED + b"0\r\n")
        send_until_refused(connection, lambda: b"X: a\r\n" * 1000, 64 << 20)


def leave_answers_unread(server: Server) -> None:
    """Two answers of megabytes that nobody reads."""
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(server.open_request("/tokenize", **BIG))
        time.sleep(3)


def close_half(server: Server) -> None:
    """A hundred clients that stop sending and leave."""
    for _ in range(100):
        with server.open_request("/completion", prompt="a", n_predict=-1) as connection:
            connection.shutdown(socket.SHUT_WR)


def send_nonsense(server: Server) -> None:
    """Requests that are none, each of which is a log line."""
    for _ in range(100):
        with connect(server.port) as connection, suppress(OSError):
            connection.sendall(b"nonsense\r\n\r\n")
            connection.recv(1024)


def overfill_queue(server: Server) -> None:
    """A request of 128 completions, and 300 that find no room behind it."""
    with server.open_request("/v1/completions", prompt="a", n=128, max_tokens=-1), ExitStack() as s:
        for _ in range(300):
            s.enter_context(server.open_request("/completion", prompt="b"))
        time.sleep(0.5)


ATTACKS: Final[dict[str, Attack]] = {
    "trailers": send_trailers,
    "unread answers": leave_answers_unread,
    "half-closed": close_half,
    "nonsense": send_nonsense,
    "full queue": overfill_queue,
}


def measure(attack: Attack, seconds: float) -> dict[str, Any]:
    """Repeat an attack; returns the report and what memory has grown by a minute later."""
    with serving("-np", "2", "--max-queue-requests", "127", "--timeout", "2") as server:
        attack(server)  # what the first one makes, chat's modules say, stays
        memory = Memory(server.process.pid)
        with watching(server.port) as bystander:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                attack(server)
        grown = memory.settled_bytes(at_most=GROWN_BYTES)
        report = bystander.report
        return {
            "longest_gap_ms": round(report.longest_gap_ms, 1),
            "longest_health_ms": round(report.longest_health_ms, 1),
            "grown_mib": grown >> 20,
            "failures": report.failures,
            "holds": report.is_within(gap_ms=GAP_MS, health_ms=HEALTH_MS) and grown <= GROWN_BYTES,
        }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)}; without: all")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    found = {name: measure(ATTACKS[name], options.seconds) for name in options.names or ATTACKS}
    print(json.dumps({"hardware": describe_hardware(), "attacks": found}, indent=1))
    return 0 if all(result["holds"] for result in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
