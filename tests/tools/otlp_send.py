"""Sends metrics by OpenTelemetry's SDK: over HTTP and gRPC, with cumulative and delta temporality.

    otlp_send.py HTTP_ADDRESS GRPC_ADDRESS

Each of the six senders (transports http, gzip, grpc) is a service of its own, `shop-<transport>-<temporality>`, and
records the same measurements in three exports. Beside them three hosts, which name no service, tell of their memory and
network for each temporality.
"""

import logging
import math
import sys
import time

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk import metrics
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource


class Failures(logging.Handler):
    """Keeps what the SDK says: exporters report failures in no other way."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def send(transport, temporality, exporter):
    resource = Resource.create(
        {
            "service.name": f"shop-{transport}-{temporality}",
            "service.namespace": "test",
            "service.instance.id": "i-1",
            "service.version": "1.2.3",
        }
    )
    views = [
        View(instrument_name="size", aggregation=ExponentialBucketHistogramAggregation()),
        View(instrument_name="latency", aggregation=ExplicitBucketHistogramAggregation([0.1, 0.5, 1.0, 5.0])),
    ]
    # An endless interval: exports happen when we say so.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    provider = metrics.MeterProvider(
        metric_readers=[reader], resource=resource, views=views, shutdown_on_exit=False
    )
    meter = provider.get_meter("shop", "0.1")
    temperatures = iter([20.5, 21.25, 19.75])
    meter.create_observable_gauge("temperature", [lambda _: [Observation(next(temperatures), {"room": "hall"})]], "Cel")
    orders = meter.create_counter("orders", "1", "Orders taken.")
    sent = meter.create_counter("sent.bytes", "By")
    queue = meter.create_up_down_counter("queue.size", "{items}")
    latency = meter.create_histogram("latency", "s", "Time of a request.")
    size = meter.create_histogram("size", "By")
    level = meter.create_gauge("fill.level", "%")
    for n in range(3):
        orders.add(4, {"region": "eu", "shop.id": "7"})
        orders.add(n + 1, {"region": "us", "shop.id": "8"})
        sent.add(1000.5)
        queue.add(5)
        queue.add(-3)
        for seconds in (0.05, 0.3, 0.3, 0.7, 7.0):
            latency.record(seconds, {"path": "/"})
        for size_bytes in (0, 1, 100, 10_000 * 10**n):
            size.record(size_bytes)
        level.set(10.5 * (n + 1), {"tank": "a"})
        time.sleep(0.02)
        if not provider.force_flush():
            sys.exit(f"{transport}, {temporality}: not sent")


def send_of_host(host, n, temporality, exporter):
    """What the collector's host receiver sends: a resource without a service."""
    resource = Resource({"host.name": f"{host}-{temporality}", "host.id": f"id-{n}", "os.type": "linux", "host.cpu.cores": n})
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    provider = metrics.MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("hostmetrics")
    used = meter.create_up_down_counter("system.memory.usage", "By")
    sent = meter.create_counter("system.network.io", "By")
    for _ in range(3):
        used.add(100 * n, {"state": "used"})
        sent.add(10 * n, {"direction": "transmit"})
        time.sleep(0.02)
        if not provider.force_flush():
            sys.exit(f"{host}, {temporality}: not sent")


def main():
    http, grpc = sys.argv[1:]
    failures = Failures()
    logging.getLogger().addHandler(failures)
    kinds = (metrics.Counter, metrics.Histogram, metrics.ObservableCounter)
    for temporality in ("cumulative", "delta"):
        preferred = {kind: AggregationTemporality[temporality.upper()] for kind in kinds}
        for compression in (Compression.NoCompression, Compression.Gzip):
            exporter = HttpExporter(
                endpoint=f"http://{http}/v1/metrics", preferred_temporality=preferred, compression=compression
            )
            send("gzip" if compression == Compression.Gzip else "http", temporality, exporter)
        send("grpc", temporality, GrpcExporter(endpoint=f"http://{grpc}", insecure=True, preferred_temporality=preferred))
        for n, host in enumerate(("a", "b", "c"), 1):
            exporter = HttpExporter(endpoint=f"http://{http}/v1/metrics", preferred_temporality=preferred)
            send_of_host(host, n, temporality, exporter)
    if failures.texts:
        sys.exit("\n".join(failures.texts))


main()
