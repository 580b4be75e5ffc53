#!/usr/bin/env python3
"""Odd requests to a real server with default flags: whatever a client sends, it is no 5xx.

    python -m tests.fuzz.fuzz_server --n 100000 --seed 1 --out FOLDER
    python -m tests.fuzz.fuzz_server --seed 1 --only 4711    # one of them, shown

Exit status 1 if a request was answered with 5xx (501 is an answer, and so is 503 of a full queue),
if the process changed, or if a fixed
request is not answered as before.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.fuzz.good_bodies import GOOD_BODIES
from tests.fuzz.odd_requests import OddRequests, Route
from tests.fuzz.odd_values import words_of_sources
from tests.fuzz.verdict import Tally, tracebacks
from tests.fuzz.wire import Wire
from tests.parity.field_values import CHAT, SPECIAL
from tests.support.server import Server, serving
from unpaced.schemas.completion import CompletionBody

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (
    *(
        "unpaced/schemas/*.py",
        "unpaced/chat/*.py",
        "unpaced/chat/tools/*.py",
        "unpaced/routes/*.py",
    ),
    *(
        "unpaced/grammar/*.py",
        "unpaced/request/infill.py",
        "unpaced/request/prompt.py",
        "tests/parity/field_values.py",
    ),
)
N_CLIENTS: Final = 8
TIMEOUT_S: Final = 60.0
STALL_S: Final = 1.0
SLOW_S: Final = 5.0
_BUSY: Final = ("unpaced_requests_running", "unpaced_requests_waiting")
GOLDEN: Final[dict[str, Any]] = {
    "prompt": "Once upon a time",
    "n_predict": 48,
    "seed": 7,
    "temperature": 0.9,
    "n_probs": 3,
    "cache_prompt": False,
    "return_tokens": True,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run: `is_golden`: the fixed request was answered as before; `is_same_process`."""

    tally: Tally
    took_s: float
    is_golden: bool
    is_same_process: bool

    @property
    def is_good(self) -> bool:
        """True if nothing is the server's fault."""
        return self.is_golden and self.is_same_process and not self.tally.faults


def run_fuzz(server: Server, numbers: Sequence[int], *, seed: int, slow_s: float) -> Outcome:
    """Send the requests of these numbers, some at a time."""
    requests = odd_requests(server, seed)
    tally = Tally(slow_s)
    before, started = golden(server), time.monotonic()
    asyncio.run(_send_all(server.port, requests, iter(numbers), tally))
    took_s = time.monotonic() - started
    is_alive = Path(f"/proc/{server.process.pid}/stat").exists()
    return Outcome(tally, took_s, golden(server) == before, is_alive)


def odd_requests(server: Server, seed: int) -> OddRequests:
    """Of what the server says it serves, and of names that its code spells."""
    paths = server.client.get("/openapi.json").json()["paths"]
    routes = [Route(method.upper(), path) for path in paths for method in paths[path]]
    good = (name for bodies in GOOD_BODIES.values() for body in bodies for name in body)
    fields = sorted({*CompletionBody.model_fields, *SPECIAL, *CHAT, *good})
    files = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    words = words_of_sources("\n".join(path.read_text() for path in files))
    return OddRequests(seed, routes, fields, words)


def golden(server: Server) -> Any:
    """The fixed request's answer, without times and places.

    It comes alone and the second time: the first one makes idle slots give up their cells, and
    attention's last bits depend on which cells of the KV are in use.
    """
    server.until(lambda: not any(server.metric(name) for name in _BUSY))
    for _ in range(2):
        response = httpx.post(f"{server.url}/completion", json=GOLDEN, timeout=60, trust_env=False)
        answer = response.raise_for_status().json()
    return {key: answer[key] for key in ("content", "tokens", "completion_probabilities")}


async def _send_all(port: int, requests: OddRequests, left: Iterator[int], tally: Tally) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(N_CLIENTS):
            group.create_task(_client(Wire(port, TIMEOUT_S, STALL_S), requests, left, tally))


async def _client(wire: Wire, requests: OddRequests, left: Iterator[int], tally: Tally) -> None:
    for number in left:
        request = requests.make(number)
        started = time.monotonic()
        reply = await wire.ask(request)
        tally.count(number, request, reply, time.monotonic() - started)
    await wire.close()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", default=[])
    parser.add_argument("--slow", type=float, default=SLOW_S, help="list answers over this, s")
    parser.add_argument("--out", type=Path, help="folder for fuzz.json and the server's log")
    parser.add_argument("flags", nargs="*", help="flags of the server, behind --")
    options = parser.parse_args()
    numbers = options.only or range(options.first, options.first + options.n)
    with serving(*options.flags) as server:
        for number in options.only:
            print(number, odd_requests(server, options.seed).make(number).to_bytes()[:3000])
        outcome = run_fuzz(server, numbers, seed=options.seed, slow_s=options.slow)
        log = server.log.read_text(errors="replace")
    tally = outcome.tally
    print(f"{len(numbers)} requests, {len(numbers) / outcome.took_s:.0f} a second")
    print("statuses", dict(sorted(tally.statuses.items())), "cut", tally.n_cut)
    print("documented 5xx", dict(tally.documented))
    print("slow", sorted(tally.slow, reverse=True)[:20])
    print("no answer", tally.unanswered[:20])
    print("golden equal", outcome.is_golden, "process kept", outcome.is_same_process)
    print("faults", len(tally.faults))
    for where, n_times in tracebacks(log).most_common():
        print(f"{n_times:6} {where}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "server.log").write_text(log)
        figures = {"n": len(numbers), "seed": options.seed, **tally.to_json()}
        (options.out / "fuzz.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
