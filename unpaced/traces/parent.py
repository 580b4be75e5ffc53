"""Whose trace a request belongs to: W3C's `traceparent`, or another header that OTEL_PROPAGATORS
names."""

from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext

from unpaced.http.trace_ids import TraceIds


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


def ids_of(span: Span) -> TraceIds | None:
    """What a log line says of a span; None: there is none."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return TraceIds(trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id))
