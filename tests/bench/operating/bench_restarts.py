"""A server under load, killed again and again: when it is ready again, and what clients saw.

`python -m tests.bench.operating.bench_restarts --out docs/bench` writes restarts.md and
results/restarts.json. Most kills are signals; every tenth one is a decode thread that stands still,
by ptrace.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import statistics
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench.bench_startup import time_server
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.support.faults.frozen_thread import frozen, thread_of
from tests.support.server import Server
from tests.support.supervision.supervised import child_of, is_healthy, supervised

N_STREAMS: Final = 4
SIGNALS: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
HANG: Final = "decode thread stands still"
_STALL_S: Final = 2
_BODY: Final = {"prompt": "Once", "n_predict": -1, "ignore_eos": True, "stream": True}
_HEADERS: Final = {"Content-Type": "application/json"}
_WALL: Final = 0x40000000


class Load:
    """Streams without an end, begun again whenever they end, and short requests one by one.

    `ends` counts how streams ended, `answers` what the short requests got.
    """

    def __init__(self, port: int) -> None:
        self.ends: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.streaming: set[int] = set()
        self._port = port
        self._is_over = threading.Event()
        work = [partial(self._stream, number) for number in range(N_STREAMS)]
        work += [partial(self._ask), partial(self._ask)]
        self._threads = [threading.Thread(target=each, daemon=True) for each in work]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def wait_streaming(self) -> None:
        """Return once every stream has had a token. Raises: TimeoutError."""
        deadline = time.monotonic() + 60
        while len(self.streaming) < N_STREAMS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.streaming} stream; {self.ends}, {self.answers}")
            time.sleep(0.005)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)

    def _stream(self, number: int) -> None:
        while not self._is_over.is_set():
            end = "connection refused"
            connection = self._connect()
            try:
                connection.request("POST", "/completion", json.dumps(_BODY), _HEADERS)
                answer = connection.getresponse()
                end = "cut off" if answer.status == 200 else f"status {answer.status}"
                for line in answer:
                    self.streaming.add(number)
                    if b'"error"' in line and answer.status == 200:
                        end = "error event"
                    elif b'"stop":true' in line:
                        end = "complete"
            except ConnectionRefusedError:
                pass
            except (OSError, http.client.HTTPException):
                end = "cut off" if end == "connection refused" else end
            finally:
                self.streaming.discard(number)
                connection.close()
            if not self._is_over.is_set():
                self.ends[end] += 1

    def _ask(self) -> None:
        body = json.dumps({"content": "a"})
        while not self._is_over.wait(0.02):
            connection = self._connect()
            try:
                connection.request("POST", "/tokenize", body, _HEADERS)
                self.answers[f"status {connection.getresponse().status}"] += 1
            except ConnectionRefusedError:
                self.answers["connection refused"] += 1
            except (OSError, http.client.HTTPException):
                self.answers["cut off"] += 1
            finally:
                connection.close()


def end_child(child: int, how: str) -> float:
    """End the process that serves; the time.monotonic() when it was done, or when it hung."""
    if how != HANG:
        began = time.monotonic()
        os.kill(child, signal.Signals[how])
        return began
    thread = thread_of(child, "decode")
    with frozen(thread):
        began = time.monotonic()
        while Path(f"/proc/{child}").exists():
            with contextlib.suppress(ChildProcessError):  # the tracer learns of its end first
                os.waitpid(thread, os.WNOHANG | _WALL)
            time.sleep(0.01)
    return began


def restart(server: Server, load: Load, how: str) -> float:
    """Seconds from the end of a server under load until the next one is ready."""
    load.wait_streaming()
    old = child_of(server.process.pid)
    began = end_child(old, how)
    while True:
        with contextlib.suppress(LookupError):
            if child_of(server.process.pid) != old and is_healthy(server):
                return time.monotonic() - began
        time.sleep(0.005)


def measure(n: int) -> dict[str, Any]:
    """`n` kills under load."""
    load_s = statistics.median(time_server()["health_s"] for _ in range(5))
    hows = [HANG if i % 10 == 9 else SIGNALS[i % len(SIGNALS)].name for i in range(n)]
    flags = ("-np", str(N_STREAMS + 1), "--stall-timeout", str(_STALL_S), "--stop-timeout", "2")
    restarts = []
    with supervised(*flags) as server:
        with Load(server.port) as load:
            for how in hows:
                ends_before = load.ends.copy()
                seconds = restart(server, load, how)
                ends = load.ends - ends_before
                restarts.append({"how": how, "ready_s": round(seconds, 3), "streams": dict(ends)})
            load.wait_streaming()
            found = {"stream_ends": dict(load.ends), "answers": dict(load.answers)}
        log = server.log.read_text()
        counted = {
            reason: server.metric(f'unpaced_supervisor_restarts_total{{reason="{reason}"}}')
            for reason in ("signal", "engine_lost", "hang", "exit")
        }
    told = re.findall(r"ready again after_s=([\d.]+) start_s=([\d.]+)", log)
    return {
        "hardware": describe_hardware(),
        "n": n,
        "load_s": round(load_s, 3),
        "ready_after_end_s": [float(after) for after, _ in told],
        "of_it_start_s": [float(start) for _, start in told],
        "counted": counted,
        "restarts": restarts,
        **found,
    }


def table_of(result: dict[str, Any]) -> str:
    """A line for each way to end a server."""
    lines = [
        "| how it ended | times | until ready, median s | worst s | streams then: how they ended |",
        "|---|---|---|---|---|",
    ]
    for how in dict.fromkeys(entry["how"] for entry in result["restarts"]):
        its = [entry for entry in result["restarts"] if entry["how"] == how]
        seconds = [entry["ready_s"] for entry in its]
        ends: Counter[str] = Counter()
        for entry in its:
            ends.update(entry["streams"])
        told = ", ".join(f"{n} {end}" for end, n in ends.most_common())
        median, worst = statistics.median(seconds), max(seconds)
        lines.append(f"| {how} | {len(its)} | {median:.2f} | {worst:.2f} | {told} |")
    return "\n".join(lines)


def page_of(result: dict[str, Any]) -> str:
    """The page of docs/bench."""
    after, load_s = result["ready_after_end_s"], result["load_s"]
    starts = result["of_it_start_s"]
    n_in_time = sum(whole <= start + 2 for whole, start in zip(after, starts, strict=True))
    answers = ", ".join(f"{n} {what}" for what, n in Counter(result["answers"]).most_common())
    return f"""# Restarts

`python -m tests.bench.operating.bench_restarts -n {result["n"]} --out docs/bench`, demo model,
{result["hardware"]}. Other work shared the machine.

A server under `--supervise` has {N_STREAMS} endless streams and two clients that ask for something
short all the time. It is ended {result["n"]} times, each time when all streams have tokens.

{table_of(result)}

* A start alone takes {load_s:.2f} s until /health is 200. From a server's end until the next one is
  ready, by the supervisor's log: median {statistics.median(after):.2f} s, worst {max(after):.2f} s.
  The start itself, beside whoever else computes then, is {statistics.median(starts):.2f} s of it in
  the median, worst {max(starts):.2f} s, and a second is the wait after a server that did not live
  for ten. {n_in_time} of {len(after)} were ready within their start's time and 2 s.
* A decode thread that stands still counts as lost after {_STALL_S} s here
  (`--stall-timeout {_STALL_S}`; the default is 60 s), and those seconds are in its line. Its server
  can still tell its clients, and does: an error event ends each stream that was open. The 503 of
  that line are streams that were begun anew while it ended; those of the others came from the
  supervisor, where a start took more than two seconds.
* A process that SIGKILL or a fault ends tells nobody: its streams are cut off.
* The short requests got: {answers}.
* Counted by the last server's metrics: {json.dumps(result["counted"])}.
"""


def main() -> None:
    """Print a table; with --out write results/restarts.json and restarts.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result = measure(given.n)
    print(page_of(result))
    if given.out is not None:
        save_figures(given.out, "restarts", result)
        (given.out / "restarts.md").write_text(page_of(result))


if __name__ == "__main__":
    main()
