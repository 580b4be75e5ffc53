"""Spans of requests, made when a request is over and sent by OTLP from a thread.

The request's span has a span for each choice's time in the queue, its prompt and its decoding; the
first token is an event. All times come from what the log and the metrics use, too: nothing is
measured for a span, and nothing happens before the answer is sent.
"""

import asyncio
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from starlette.types import Scope

from unpaced.completion.response import CompletionResponse
from unpaced.http.request_record import RequestRecord
from unpaced.http.trace_ids import TraceIds
from unpaced.traces.attributes import completion_attributes, finish_reason, first_token_us
from unpaced.traces.export import BoundedProcessor, CountingExporter, SpanCollector
from unpaced.traces.parent import ids_of, parent_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from unpaced.completion.choice import Choice

_PROTOCOL: Final = "http/protobuf"
_METHODS: Final = frozenset({"DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"})
_CLOSE_S: Final = 2.0
_NUMBERS: Final = (  # the SDK's own error does not say which it is
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
)


class Traces:
    """The OTEL_* variables say where spans go, which are sampled and how many may wait.

    Event loop's thread only. Raises: ValueError for a variable that asks for what is not there.
    """

    def __init__(self, registry: "CollectorRegistry", version: str) -> None:
        _check_environment()
        exporter = CountingExporter(OTLPSpanExporter())
        processor = BoundedProcessor(exporter)
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("unpaced", version)
        SpanCollector(registry, exporter, processor)

    def conclude(self, scope: Scope, record: RequestRecord) -> TraceIds | None:
        """A request is over: make its spans. Pages that went well and probes have none.

        Returns: the request's span, or the client's where the request has none.
        """
        parent = parent_of(scope["headers"])
        # 503 is what a probe is told while the model loads and while the last streams end.
        if scope["method"] == "GET" and (record.status < 400 or record.status == 503):
            return ids_of(trace.get_current_span(parent))
        clock = _Clock()
        route = getattr(scope.get("route"), "path", "other")
        attributes: dict[str, Any] = {
            "http.request.method": scope["method"] if scope["method"] in _METHODS else "_OTHER",
            "http.route": route,
            "http.response.status_code": record.status,
            "url.scheme": scope["scheme"],
        }
        work = record.work if isinstance(record.work, CompletionResponse) else None
        if work is not None:
            attributes |= completion_attributes(work, route)
        if record.aborted:
            attributes["unpaced.aborted"] = record.aborted
        span = self._tracer.start_span(
            f"{attributes['http.request.method']} {route}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=clock.ns(record.started_us),
        )
        if span.is_recording():
            if record.status >= 500:
                span.set_attribute("error.type", str(record.status))
                span.set_status(Status(StatusCode.ERROR))
            if work is not None:
                if first_us := first_token_us(work):
                    span.add_event("first token", timestamp=clock.ns(first_us))
                for index, choice in enumerate(work.choices):
                    self._phases(trace.set_span_in_context(span), clock, index, choice)
        span.end(clock.now_ns)
        return ids_of(span)

    def _phases(self, parent: Context, clock: "_Clock", index: int, choice: "Choice") -> None:
        timings, arrived_us = choice.sequence_text.timings, choice.arrived_us
        start_us, first_us = timings.start_us, timings.first_token_us
        now_us = clock.now_us
        phases: list[tuple[str, int, int, dict[str, Any]]]
        phases = [("queue", arrived_us, start_us or now_us, {})]
        if start_us:
            tokens = {"unpaced.prompt_tokens": timings.n_processed - timings.n_cached}
            phases.append(("prefill", start_us, first_us or now_us, tokens))
        if first_us:
            tokens = {"unpaced.tokens": timings.n_decoded}
            phases.append(("decode", first_us, timings.last_token_us, tokens))
        common: dict[str, Any] = {
            "unpaced.choice": index,
            "unpaced.finish_reason": finish_reason(choice),
        }
        for name, begin_us, end_us, figures in phases:
            span = self._tracer.start_span(
                name,
                context=parent,
                kind=SpanKind.INTERNAL,
                attributes=common | figures,
                start_time=clock.ns(begin_us),
            )
            span.end(clock.ns(end_us))

    async def close(self) -> None:
        """Send what waits, for two seconds at most; a collector that is gone holds nobody up."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has not waited
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=shut_down, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _CLOSE_S)


class _Clock:
    """Turns the engine's clock, which no one sets, into the time of day."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns()
        self.now_us = time.monotonic_ns() // 1000

    def ns(self, at_us: int) -> int:
        """Nanoseconds since 1970 of microseconds of the steady clock."""
        return self.now_ns - (self.now_us - at_us) * 1000


def _check_environment() -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(name)
        if protocol and protocol != _PROTOCOL:
            raise ValueError(f"traces: {name} is {protocol}; spans are sent by {_PROTOCOL}")
    exporter = os.environ.get("OTEL_TRACES_EXPORTER")
    if exporter and exporter != "otlp":
        raise ValueError(f"traces: OTEL_TRACES_EXPORTER is {exporter}; spans are sent by otlp")
    for name in _NUMBERS:
        told = os.environ.get(name)
        if told and not told.isdecimal():
            raise ValueError(f"traces: {name} is {told!r}, which is no whole number")


def _resource(version: str) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, and our name where they say none."""
    told = Resource.create({SERVICE_VERSION: version})
    if str(told.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return told.merge(Resource({SERVICE_NAME: "unpaced"}))
    return told
