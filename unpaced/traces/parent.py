"""Whose trace a request belongs to: W3C's `traceparent`, or another header that OTEL_PROPAGATORS
names."""

from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.trace import NonRecordingSpan, SpanContext


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    """The context of a request's headers; an empty one where they name no trace.

    Of the client's nothing but ids and the sampling flag is taken over: `tracestate` and baggage
    are free text, which would end up in spans.
    """
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    told = trace.get_current_span(extract(carrier, context=Context())).get_span_context()
    if not told.is_valid:
        return Context()
    ids = SpanContext(told.trace_id, told.span_id, is_remote=True, trace_flags=told.trace_flags)
    return trace.set_span_in_context(NonRecordingSpan(ids), Context())
