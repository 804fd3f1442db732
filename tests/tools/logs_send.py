"""Sends logs by real clients.

    logs_send.py HTTP_ADDRESS OTLP_HTTP_ADDRESS OTLP_GRPC_ADDRESS

The search engine's bulk helper, OpenTelemetry's SDK over HTTP and gRPC, the client of the SaaS intake, and a logging
handler of the aggregator each send ten records, `<client> record <n>`. What a client reports as failed ends the script.
"""

import logging
import sys

import logging_loki
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.v2.api.logs_api import LogsApi
from datadog_api_client.v2.model.content_encoding import ContentEncoding
from datadog_api_client.v2.model.http_log import HTTPLog
from datadog_api_client.v2.model.http_log_item import HTTPLogItem
from elasticsearch import Elasticsearch, helpers
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

COUNT = 10


def search_engine(http):
    client = Elasticsearch(f"http://{http}/insert/searchengine", http_compress=True)
    assert client.info()["version"]["number"] == "8.9.0"
    actions = [
        {"_op_type": "create", "_index": "logs", "@timestamp": "2025-03-10T09:46:40Z", "_msg": f"bulk record {n}", "n": n}
        for n in range(COUNT)
    ]
    taken, failed = helpers.bulk(client.options(headers={"Logs-Time-Field": "@timestamp"}), actions)
    assert (taken, failed) == (COUNT, []), (taken, failed)
    actions[3]["@timestamp"] = "yesterday"
    taken, failed = helpers.bulk(client.options(headers={"Logs-Time-Field": "@timestamp"}), actions, raise_on_error=False)
    assert taken == COUNT - 1 and len(failed) == 1 and failed[0]["create"]["status"] == 400, (taken, failed)


def telemetry(name, exporter):
    provider = LoggerProvider(Resource.create({"service.name": f"shop-{name}"}), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger(f"telemetry.{name}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(LoggingHandler(logger_provider=provider))
    for n in range(COUNT):
        logger.warning("%s record %d", name, n, extra={"n": n, "nested": {"a": True}})
    assert provider.force_flush()
    provider.shutdown()


def saas(http):
    configuration = Configuration(host=f"http://{http}/insert/saas")
    configuration.api_key["apiKeyAuth"] = "none"
    configuration.server_operation_index["v2.submit_log"] = 0
    with ApiClient(configuration) as client:
        # The client knows its own hosts only.
        api = LogsApi(client)
        api._submit_log_endpoint.settings["servers"] = None
        for encoding in (None, ContentEncoding.GZIP, ContentEncoding.DEFLATE):
            items = [
                HTTPLogItem(ddsource="python", ddtags="env:test,plain", hostname="h", message=f"saas record {n}", service="shop")
                for n in range(COUNT)
            ]
            options = {} if encoding is None else {"content_encoding": encoding}
            assert api.submit_log(body=HTTPLog(items), **options) == {}


def aggregator(http):
    failures = []
    handler = logging_loki.LokiHandler(url=f"http://{http}/insert/aggregator/loki/api/v1/push", tags={"app": "loki"}, version="1")
    handler.handleError = lambda record: failures.append(sys.exc_info()[1])
    logger = logging.getLogger("aggregator")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    for n in range(COUNT):
        logger.error("aggregator record %d", n, extra={"tags": {"n": str(n)}})
    assert not failures, failures


class Failures(logging.Handler):
    """Keeps what the SDK says: exporters report failures in no other way."""

    texts = []

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            self.texts.append(record.getMessage())


def main():
    http, otlp_http, otlp_grpc = sys.argv[1:]
    logging.getLogger().addHandler(Failures())
    search_engine(http)
    telemetry("http", HttpExporter(endpoint=f"http://{otlp_http}/v1/logs"))
    telemetry("gzip", HttpExporter(endpoint=f"http://{otlp_http}/v1/logs", compression=Compression.Gzip))
    telemetry("grpc", GrpcExporter(endpoint=f"http://{otlp_grpc}", insecure=True))
    saas(http)
    aggregator(http)
    if Failures.texts:
        sys.exit("\n".join(Failures.texts))


main()
