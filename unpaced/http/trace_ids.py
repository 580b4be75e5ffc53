"""Which trace a request belongs to, as its log line tells it."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

# Version 00, or a later one, which may go on behind the flags. ff is forbidden.
# Source: W3C Trace Context, 3.2 (traceparent) and 4.3 (versions to come).
_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?"
)


class TraceIds(NamedTuple):
    """Ids in lower-case hexadecimal digits: 32 of the trace, 16 of the span."""

    trace_id: str
    span_id: str

    @classmethod
    def of_headers(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self | None:
        """The client's, if its `traceparent` is one, once; nothing else of it is kept."""
        told = [value for name, value in headers if name == b"traceparent"]
        found = _TRACEPARENT.fullmatch(told[0]) if len(told) == 1 else None
        if found is None or (told[0].startswith(b"00") and found[3]):
            return None
        return cls(found[1].decode(), found[2].decode())
