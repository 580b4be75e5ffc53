"""What another client notices while a server is under attack, and what the attack leaves behind.

    with serving("-np", "2") as server, watching(server.port) as bystander:
        attack(server)
    report = bystander.report

A process of its own keeps one stream open and asks /health/live forty times a second, so that the
attacker's Python does not delay what it measures. It needs a slot that the attack leaves free. A
stream that ends by itself is followed by the next one. `Memory` tells how much more than before the
server's processes hold.

CI asserts lenient bounds: its machine is busy. `python -m tests.bench.bench_attacks` holds every
attack to the strict ones on a quiet one.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

_POLL_S = 0.025
_LIMIT_S = 60.0
_BODY = {"prompt": "Once upon a time", "n_predict": -1, "ignore_eos": True, "stream": True}
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Report:
    """What the bystander saw. Times are milliseconds.

    `longest_gap_ms`: between two pieces of one stream. `longest_first_ms`: from a stream's request
    to its first piece. `longest_health_ms`: from connect to the answer of /health/live.
    `failures`: streams that broke off or ended with an error, health checks that were no 200.
    """

    longest_gap_ms: float = 0.0
    longest_first_ms: float = 0.0
    longest_health_ms: float = 0.0
    n_pieces: int = 0
    n_health: int = 0
    failures: list[str] = field(default_factory=list)

    def is_within(self, *, gap_ms: float, health_ms: float) -> bool:
        """Nothing failed, and nothing took longer."""
        is_quick = self.longest_gap_ms <= gap_ms and self.longest_health_ms <= health_ms
        return is_quick and not self.failures and self.n_pieces > 0 and self.n_health > 0


class Bystander:
    """Use `watching`. `report` is there once its block has ended."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.support.bystander", str(port)]
        command += [f"{name}: {value}" for name, value in headers.items()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # both are under way
        self.report = Report()

    def stop(self) -> None:
        """Ends the watch and fills `report`."""
        out, _ = self._process.communicate(timeout=2 * _LIMIT_S)
        self.report = Report(**json.loads(out))


@contextlib.contextmanager
def watching(port: int, headers: Mapping[str, str] | None = None) -> Iterator[Bystander]:
    """A bystander at the server on this port of the loopback; `headers`: what it sends, a key say.

    Returns once its stream flows and its first health check is answered.
    """
    bystander = Bystander(port, headers or {})
    try:
        yield bystander
    finally:
        bystander.stop()


class Memory:
    """Resident memory of a process and its children, against what it was when this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before_bytes = resident_bytes(pid)

    def grown_bytes(self) -> int:
        """More than before."""
        return resident_bytes(self._pid) - self.before_bytes

    def settled_bytes(self, *, at_most: int, timeout_s: float = 60) -> int:
        """What it has grown by: as soon as that is `at_most`, else after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (grown := self.grown_bytes()) > at_most and time.monotonic() < deadline:
            time.sleep(0.2)
        return grown


def resident_bytes(pid: int) -> int:
    """Of a process and all that it started."""
    total = 0
    for each in (pid, *_children(pid)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * _PAGE
    return total


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _children(int(child))


class _Watch:
    """Inside the bystander's process: two threads, one report."""

    def __init__(self, port: int, headers: list[str]) -> None:
        self._port = port
        self._headers = "".join(f"{header}\r\n" for header in headers)
        self._ends = threading.Event()
        self.report = Report()

    def run(self) -> None:
        flows = [threading.Event(), threading.Event()]
        threads = [
            threading.Thread(target=self._repeat, args=(work, event, pause), daemon=True)
            for work, event, pause in zip(
                (self._stream, self._ask), flows, (0.0, _POLL_S), strict=True
            )
        ]
        for thread in threads:
            thread.start()
        for event in flows:
            event.wait(_LIMIT_S)
        print("under way", flush=True)
        sys.stdin.read()
        self._ends.set()
        for thread in threads:
            thread.join(_LIMIT_S)

    def _repeat(
        self, work: Callable[[threading.Event], None], event: threading.Event, pause_s: float
    ) -> None:
        while not self._ends.is_set():
            try:
                work(event)
            except OSError as error:
                self._fail(repr(error))
            self._ends.wait(pause_s)

    def _fail(self, text: str) -> None:
        if not self._ends.is_set() and len(self.report.failures) < 20:
            self.report.failures.append(text)

    def _connect(self, head: str, body: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=_LIMIT_S)
        connection.sendall(
            f"{head} HTTP/1.1\r\nHost: localhost\r\n{self._headers}Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return connection

    def _ask(self, event: threading.Event) -> None:
        started = time.monotonic()
        with self._connect("GET /health/live") as connection:
            answer = connection.recv(4096)
        took_ms = (time.monotonic() - started) * 1e3
        self.report.longest_health_ms = max(self.report.longest_health_ms, took_ms)
        self.report.n_health += 1
        if not answer.startswith(b"HTTP/1.1 200"):
            self._fail(f"health: {answer[:80]!r}")
        event.set()

    def _receive(self, connection: socket.socket, tail: bytes) -> bytes:
        try:
            return connection.recv(65536)
        except ConnectionResetError:
            if tail:
                raise
            raise ConnectionResetError("the queue is full: reset before it began") from None

    def _stream(self, event: threading.Event) -> None:
        report = self.report
        last = time.monotonic()
        longest_s, tail = 0.0, b""
        with self._connect("POST /completion", json.dumps(_BODY).encode()) as connection:
            while not self._ends.is_set() and (piece := self._receive(connection, tail)):
                now = time.monotonic()
                if tail:
                    longest_s = max(longest_s, now - last)
                else:
                    report.longest_first_ms = max(report.longest_first_ms, (now - last) * 1e3)
                    event.set()
                last, tail = now, (tail + piece)[-4096:]
                report.n_pieces += 1
                report.longest_gap_ms = max(report.longest_gap_ms, longest_s * 1e3)
        if b'"stop":true' not in tail:
            self._fail(f"stream: broke off after {tail[-300:]!r}")


def main() -> None:
    """Watch until standard input ends, then print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("headers", nargs="*", help="'Name: value' of every request")
    options = parser.parse_args()
    watch = _Watch(options.port, options.headers)
    watch.run()
    print(json.dumps(asdict(watch.report)))


if __name__ == "__main__":
    main()
