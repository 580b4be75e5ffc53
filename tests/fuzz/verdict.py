"""Whether an answer says that the server is at fault, and how many answers said what."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.fuzz.odd_requests import OddRequest
from tests.fuzz.wire import Reply

# Answers, not faults: a full queue, and /slots?fail_on_no_slot=1.
_DOCUMENTED: Final = {
    503: ("the queue is full", "no slot available"),
}
_BROKEN: Final = 599


@dataclass(slots=True)
class Fault:
    """A request whose answer says that the server is at fault."""

    number: int
    method: str
    target: str
    status: int
    message: str
    request: str


@dataclass(slots=True)
class Tally:
    """What came back. `slow_s`: how long an answer may take without being listed."""

    slow_s: float
    statuses: Counter[int] = field(default_factory=Counter)
    by_route: Counter[str] = field(default_factory=Counter)
    documented: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    slow: list[tuple[float, int, str]] = field(default_factory=list)
    unanswered: list[tuple[int, str]] = field(default_factory=list)
    n_cut: int = 0

    def count(self, number: int, request: OddRequest, reply: Reply, took_s: float) -> None:
        """One answer more."""
        name = f"{request.method} {request.target[:80]}"
        self.statuses[reply.status] += 1
        self.by_route[f"{request.method} {request.route.path} {reply.status}"] += 1
        self.n_cut += reply.is_cut
        if reply.status == 0 and not reply.is_cut:
            self.unanswered.append((number, name))
        if request.is_framed and took_s > self.slow_s:
            self.slow.append((round(took_s, 2), number, name))
        fault = _fault_of(number, request, reply)
        if fault is not None and fault.message.startswith(_DOCUMENTED.get(fault.status, ())):
            self.documented[fault.message] += 1
        elif fault is not None:
            self.faults.append(fault)
            print("FAULT", number, name, fault.status, fault.message[:120], flush=True)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "statuses": dict(sorted(self.statuses.items())),
            "by_route": dict(sorted(self.by_route.items())),
            "documented": dict(self.documented),
            "faults": [asdict(fault) for fault in self.faults],
            "slow": self.slow,
            "unanswered": self.unanswered,
            "n_cut": self.n_cut,
        }


def _fault_of(number: int, request: OddRequest, reply: Reply) -> Fault | None:
    """None if the status, or a stream's end, is none of a fault."""
    status, message = reply.status, ""
    if reply.is_broken:
        status, message = _BROKEN, f"broken off after {len(reply.body)} bytes, status {status}"
    elif reply.status >= 500:
        message = _message(reply.body)
    elif reply.headers.get("content-type", "").startswith("text/event-stream"):
        status, message = _end_of_stream(reply.body)
    if status < 500 or status == 501:
        return None
    sent = repr(request.to_bytes()[:3000])
    return Fault(number, request.method, request.target[:200], status, message, sent)


def _end_of_stream(body: bytes) -> tuple[int, str]:
    """Status and message of the error event of a stream; 200 if it has none."""
    for line in body.split(b"\n"):
        if line.startswith(b"data: {") and b'"error"' in line:
            error = json.loads(line.removeprefix(b"data: ")).get("error")
            if isinstance(error, dict):
                return int(error.get("code", 500)), str(error.get("message"))
    return 200, ""


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return repr(body[:300])


def tracebacks(log: str) -> Counter[str]:
    """Exceptions that the server logged: the last line of its own code, and what was raised."""
    found: Counter[str] = Counter()
    for text in log.split("Traceback (most recent call last):")[1:]:
        frames = re.findall(r'File "[^"]*/((?:server|engine_ext)/[^"]+)", line (\d+)', text)
        raised = re.search(r"^([\w.]*(?:Error|Exception|Group)\b.*)$", text, re.MULTILINE)
        where = ":".join(frames[-1]) if frames else "?"
        found[f"{where} {raised[1][:200] if raised else '?'}"] += 1
    return found
