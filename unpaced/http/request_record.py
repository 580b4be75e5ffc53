"""What the log and the metrics say of one HTTP request."""

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from starlette.types import Scope

from unpaced.http.trace_ids import TraceIds

_KEY: Final = "unpaced.record"
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")
_N_NAMES_SHOWN: Final = 16
_N_NAME_SHOWN: Final = 32
_GOOD_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Work(Protocol):
    """What a request had the model do."""

    def to_log(self) -> dict[str, Any]:
        """Figures of the log line. No text of the client's is in it."""


@dataclass(slots=True)
class RequestRecord:
    """Filled while the request runs; read once, when it is over."""

    given_id: str = ""
    """The client's, if it is a plain one."""
    started_us: int = field(default_factory=lambda: time.monotonic_ns() // 1000)
    status: int = 0
    aborted: str = ""
    work: Work | None = None
    trace: TraceIds | None = None
    """Its span with --traces, else the client's by `traceparent`; known when it is over."""
    unknown_samplers: Sequence[str] = ()
    """What `samplers` named and was left out."""
    _made_id: str = ""

    @property
    def request_id(self) -> str:
        """The client's id, else a random one: made when it is first asked for, which is after the
        engine has got its work."""
        if not self.given_id and not self._made_id:
            self._made_id = secrets.token_hex(16)
        return self.given_id or self._made_id

    def to_log(self) -> dict[str, Any]:
        """Figures of the log line. No text of the client's is in it."""
        entry: dict[str, Any] = {
            "status": self.status,
            "duration_ms": round((time.monotonic_ns() / 1000 - self.started_us) / 1e3, 1),
        }
        if self.aborted:
            entry["aborted"] = self.aborted
        if self.unknown_samplers:
            entry["n_unknown_samplers"] = len(self.unknown_samplers)
        if self.work is not None:
            entry |= self.work.to_log()
        if self.trace is not None:
            entry |= self.trace._asdict()
        return entry | {"request_id": self.request_id}

    def to_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer tells of its request: the id, and samplers that were left out."""
        headers = [(b"x-request-id", self.request_id.encode())]
        if self.unknown_samplers:
            names = [name[:_N_NAME_SHOWN] for name in self.unknown_samplers[:_N_NAMES_SHOWN]]
            shown = ", ".join(_NOT_PLAIN.sub("?", name) for name in names)
            headers.append((b"x-unknown-samplers", shown.encode()))
        return headers


def open_record(scope: Scope) -> RequestRecord:
    """A record for a new request, under the client's `x-request-id` if that is a plain one."""
    record = RequestRecord()
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GOOD_ID.fullmatch(value):
            record.given_id = value.decode()
    scope[_KEY] = record
    return record


def record_of(scope: Scope) -> RequestRecord:
    """The record that the middleware opened."""
    record = scope.get(_KEY)
    return record if isinstance(record, RequestRecord) else open_record(scope)
