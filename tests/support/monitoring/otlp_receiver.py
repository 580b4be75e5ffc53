"""A collector on 127.0.0.1: takes OTLP over HTTP as any collector does, and keeps the spans."""

import contextlib
import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver(ThreadingHTTPServer):
    """`spans` by arrival, `bodies` as they came, `is_silent`: it takes connections and answers
    nobody."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.is_silent = False
        self.goes_on = threading.Event()

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    def wait(self, n_spans: int, timeout_s: float = 20) -> list[Any]:
        """All spans, as soon as there are so many."""
        deadline = time.monotonic() + timeout_s
        while len(self.spans) < n_spans:
            assert time.monotonic() < deadline, [span.name for span in self.spans]
            time.sleep(0.02)
        return self.spans


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.is_silent:
            self.server.goes_on.wait(60)
            return
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        self.server.bodies.append(body)
        self.server.headers.append({k.lower(): v for k, v in self.headers.items()})
        for resource in message.resource_spans:
            self.server.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        data = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if self.path == "/v1/traces" else 404)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def attributes(holder: Any) -> dict[str, Any]:
    """A span's or a resource's attributes as Python values."""
    values = {}
    for entry in holder.attributes:
        kind = entry.value.WhichOneof("value")
        value = getattr(entry.value, kind)
        values[entry.key] = (
            [item.string_value for item in value.values] if kind == "array_value" else value
        )
    return values


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A collector in a thread of its own."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.goes_on.set()
        receiver.shutdown()
        thread.join()
        receiver.server_close()
