#!/usr/bin/env python3
"""What others notice while one client attacks: a stream's longest gap, /health/live, memory.

`python -m tests.bench.bench_attacks [NAME ...]` on a quiet machine; exit status 1 if an attack
breaks a bound. Attacks run for `--seconds` each, on a server of their own with the demo model.
`--no-memory` leaves out what waits a minute for memory to come back.
"""

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.bench.rig.hardware import describe_hardware
from tests.support.bystander import Memory, watching
from tests.support.costly_requests import ATTACKS as COSTLY
from tests.support.raw_http import CHUNKED, HEAD, connect, send_until_refused
from tests.support.server import Server, serving

GAP_MS: Final = 250.0
HEALTH_MS: Final = 100.0
GROWN_BYTES: Final = 64 << 20
BIG: Final = {"content": "a b " * 400_000, "with_pieces": True}
# What prompts leave in --cache-ram they leave on purpose.
FLAGS: Final = ("-np", "2", "--max-queue-requests", "127", "--timeout", "2", "--cache-ram", "0")
COSTLY_FLAGS: Final = ("-np", "3", "-c", "3072", "--cache-ram", "0")


@dataclass(frozen=True, slots=True)
class Attack:
    """What is sent again and again, to a server with these flags."""

    send: Callable[[Server], object]
    flags: tuple[str, ...] = FLAGS
    is_log_read: bool = True


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
        with (
            suppress(OSError),  # it may be refused by then
            server.open_request("/completion", prompt="a", n_predict=-1) as connection,
        ):
            connection.shutdown(socket.SHUT_WR)


def connect_and_leave(server: Server) -> None:
    """A hundred clients that ask and leave, as fast as one can: nothing is half-closed."""
    for _ in range(100):
        with suppress(OSError):  # it may be refused by then
            server.open_request("/completion", prompt="a", n_predict=-1).close()


def send_nonsense(server: Server) -> None:
    """Requests that are none, each of which is a log line."""
    for _ in range(100):
        with suppress(OSError), connect(server.port) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            connection.recv(1024)


def overfill_queue(server: Server) -> None:
    """A request of 128 completions, and 300 that find no room behind it."""
    with server.open_request("/v1/completions", prompt="a", n=128, max_tokens=-1), ExitStack() as s:
        for _ in range(300):
            s.enter_context(server.open_request("/completion", prompt="b"))
        time.sleep(0.5)


def read_slowly(server: Server) -> None:
    """Clients that read a little of megabytes, often enough not to be cut off."""
    with ExitStack() as held:
        asked = [("/tokenize", BIG)] * 3
        asked += [("/completion", {"prompt": "a", "n_predict": -1, "stream": True})]
        clients = [held.enter_context(server.open_request(path, **body)) for path, body in asked]
        for _ in range(20):
            time.sleep(0.1)
            for client in clients:
                client.setblocking(False)
                with suppress(OSError):
                    client.recv(512)


def fill_log(server: Server) -> None:
    """Lines by the hundred for a log that nobody reads."""
    for _ in range(500):
        server.post("/nowhere/" + "x" * 400, b"")


def send_costly(name: str, server: Server) -> None:
    """One of `tests/support/costly_requests.py`; the wrong answer is an error."""
    send, statuses = COSTLY[name]
    found = {response.status_code for response in send(server.port)}
    if not found <= statuses:
        raise RuntimeError(f"{name}: {found}")


ATTACKS: Final[Mapping[str, Attack]] = {
    "trailers": Attack(send_trailers),
    "unread answers": Attack(leave_answers_unread),
    "slow readers": Attack(read_slowly),
    "half-closed": Attack(close_half),
    "connections": Attack(connect_and_leave),
    "nonsense": Attack(send_nonsense),
    "full log pipe": Attack(fill_log, (*FLAGS, "--log-queue-bytes", "20000"), is_log_read=False),
    "full queue": Attack(overfill_queue),
    **{name: Attack(partial(send_costly, name), COSTLY_FLAGS) for name in COSTLY},
}


def measure(attack: Attack, seconds: float, *, has_memory: bool) -> dict[str, Any]:
    """Repeat an attack; returns the report and what memory has grown by a minute later."""
    with serving(*attack.flags, is_log_read=attack.is_log_read) as server:
        with watching(server.port) as first:
            attack.send(server)  # what the first one makes stays
        memory = Memory(server.process.pid)
        with watching(server.port) as bystander:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                attack.send(server)
        grown = memory.settled_bytes(at_most=GROWN_BYTES) if has_memory else 0
    reports = (first.report, bystander.report)
    n_refused = 0
    for report in reports:  # a stream that is not begun is no stream that stands still
        begun = [failure for failure in report.failures if "the queue is full" not in failure]
        n_refused += len(report.failures) - len(begun)
        report.failures = begun
    is_within = all(r.is_within(gap_ms=GAP_MS, health_ms=HEALTH_MS) for r in reports)
    found: dict[str, Any] = {
        "n_refused": n_refused,
        "longest_gap_ms": [round(report.longest_gap_ms, 1) for report in reports],
        "longest_health_ms": [round(report.longest_health_ms, 1) for report in reports],
        "failures": [failure for report in reports for failure in report.failures],
        "holds": is_within and grown <= GROWN_BYTES,
    }
    return found | ({"grown_mib": grown >> 20} if has_memory else {})


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)}; without: all")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    found = {}
    for name in options.names or ATTACKS:
        found[name] = measure(ATTACKS[name], options.seconds, has_memory=not options.no_memory)
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps({"hardware": describe_hardware(), "attacks": found}, indent=1))
    return 0 if all(result["holds"] for result in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
