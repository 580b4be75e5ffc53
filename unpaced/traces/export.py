"""The way of spans to a collector: a bounded queue and a thread; what finds no room is counted."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_QUEUE_SIZE: Final = 2048  # OpenTelemetry's default for OTEL_BSP_MAX_QUEUE_SIZE


class CountingExporter(SpanExporter):
    """Counts what another exporter takes, sends and loses. Its thread alone calls `export`."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.n_taken = 0
        self.n_sent = 0
        self.n_lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Do as the other one does."""
        self.n_taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.n_sent += len(spans)
            else:
                self.n_lost += len(spans)
        return result

    def shutdown(self) -> None:
        """End the other one."""
        self._exporter.shutdown()


class BoundedProcessor(BatchSpanProcessor):
    """OpenTelemetry's batches, with a count of the spans that found the queue full."""

    def __init__(self, exporter: CountingExporter) -> None:
        super().__init__(exporter)
        self._size = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or _QUEUE_SIZE)
        self._exporter = exporter
        self._n_queued = 0
        self.n_dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span, or drop it: nobody waits. The event loop's thread alone calls this."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._n_queued - self._exporter.n_taken >= self._size:
            self.n_dropped += 1
            return
        self._n_queued += 1
        super().on_end(span)


class SpanCollector(Collector):
    """Counts of spans, for /metrics."""

    def __init__(
        self, registry: "CollectorRegistry", exporter: CountingExporter, processor: BoundedProcessor
    ) -> None:
        self._exporter = exporter
        self._processor = processor
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """One sample of each result."""
        spans = CounterMetricFamily(
            "unpaced_spans", "Spans of requests, by what became of them", labels=["result"]
        )
        spans.add_metric(["sent"], float(self._exporter.n_sent))
        spans.add_metric(["lost"], float(self._exporter.n_lost + self._processor.n_dropped))
        yield spans
