"""`traceparent`, by the rules of W3C Trace Context."""

import pytest

from unpaced.http.trace_ids import TraceIds

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def read(*values: str) -> TraceIds | None:
    headers = [(b"traceparent", value.encode()) for value in values]
    return TraceIds.of_headers([(b"tracestate", b"a=b"), *headers])


@pytest.mark.parametrize(
    "value",
    [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01-what comes later"],
)
def test_ids_are_taken(value: str) -> None:
    assert read(value) == TraceIds(TRACE, SPAN)


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01.",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}x-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}{TRACE}-{SPAN}-01",
    ],
)
def test_what_is_no_traceparent_is_left_out(value: str) -> None:
    assert read(value) is None


def test_none_and_two_are_none() -> None:
    value = f"00-{TRACE}-{SPAN}-01"
    assert read() is None
    assert read(value, value) is None
