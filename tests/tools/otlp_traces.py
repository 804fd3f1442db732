"""Sends one trace per transport by OpenTelemetry's SDK, and prints what it sent as JSON.

    otlp_traces.py HTTP_ADDRESS GRPC_ADDRESS

A line per trace: transport, trace id, ids of its three spans. What exporters complain about ends the script.
"""

import json
import logging
import sys

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags


class Failures(logging.Handler):
    """Keeps what the SDK says: exporters report failures in no other way."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def send(transport, exporter):
    resource = Resource.create({"service.name": f"shop-{transport}", "service.version": "1.2.3"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("shop", "0.1")
    other = SpanContext(0x1234, 0x5678, True, TraceFlags(1))
    with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as root:
        root.set_attribute("http.response.status_code", 200)
        root.set_attribute("vip", True)
        root.set_attribute("load", 0.75)
        root.set_attribute("words", ["a", "b"])
        with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT, links=[Link(other, {"why": "batch"})]) as query:
            query.set_attribute("peer.service", "db")
            query.add_event("retry", {"attempt": 2})
        with tracer.start_as_current_span("render") as render:
            render.set_status(Status(StatusCode.ERROR, "no template"))
    provider.force_flush()
    provider.shutdown()
    ids = [format(s.get_span_context().span_id, "016x") for s in (root, query, render)]
    print(json.dumps([transport, format(root.get_span_context().trace_id, "032x"), ids]))


def main():
    http, grpc = sys.argv[1:]
    failures = Failures()
    logging.getLogger("opentelemetry").addHandler(failures)
    url = f"http://{http}/v1/traces"
    send("http", HttpExporter(endpoint=url))
    send("gzip", HttpExporter(endpoint=url, compression=Compression.Gzip))
    send("grpc", GrpcExporter(endpoint=f"http://{grpc}", insecure=True))
    if failures.texts:
        sys.exit("\n".join(failures.texts))


main()
