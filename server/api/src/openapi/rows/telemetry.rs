//! Operations that ingest telemetry.

use super::{BYTES, Errors, Group, JSON, LINES, OperationMethods, PROTOBUF, Row, TEXT, row};

/// OTLP responses have the format of the request.
const OTLP: &[&str] = &[PROTOBUF, JSON];

const fn otlp(path: &'static str, summary: &'static str) -> Row {
    row(OperationMethods::Post, path, summary, "").takes(OTLP).gives("200", "application/json, application/x-protobuf")
}

/// What all formats of logs take about the fields of rows.
const OF_FIELDS: &str =
    "_time_field _msg_field _stream_fields ignore_fields extra_fields decolorize_fields preserve_json_keys";
/// The same for pushes of aggregators.
const OF_STREAMS: &str = "_time_field _msg_field _stream_fields ignore_fields extra_fields decolorize_fields \
    preserve_json_keys disable_message_parsing message_fields_prefix";
/// The same for lines for Splunk's collector.
const OF_LINES: &str = "host source sourcetype index _stream_fields ignore_fields extra_fields decolorize_fields";

pub(super) const GROUPS: &[Group] = &[
    Group {
        tag: "metrics-ingest",
        at: &["/metrics-api"],
        errors: Errors::Otlp,
        rows: &[
            row(OperationMethods::Post, "/api/v1/write", "Takes remote-write, version 1 and 2", "")
                .takes(&[PROTOBUF])
                .gives("2XX", ""),
            row(
                OperationMethods::Post,
                "/api/v1/import/prometheus",
                "Takes the text format, streaming",
                "timestamp extra_label",
            )
            .takes(&[TEXT])
            .gives("2XX", ""),
            otlp("/api/v1/otlp/v1/metrics", "Takes OTLP metrics"),
        ],
    },
    Group {
        tag: "otlp",
        at: &["/insert/opentelemetry/v1", "/v1"],
        errors: Errors::Otlp,
        rows: &[
            otlp("/metrics", "Takes OTLP metrics"),
            otlp("/logs", "Takes OTLP logs"),
            otlp("/traces", "Takes OTLP spans"),
        ],
    },
    Group {
        tag: "otlp",
        at: &["/opentelemetry.proto.collector"],
        errors: Errors::Grpc,
        rows: &[
            row(OperationMethods::Post, ".metrics.v1.MetricsService/Export", "Takes OTLP metrics (gRPC)", "")
                .takes(&["application/grpc"])
                .gives("200", "application/grpc"),
            row(OperationMethods::Post, ".logs.v1.LogsService/Export", "Takes OTLP logs (gRPC)", "")
                .takes(&["application/grpc"])
                .gives("200", "application/grpc"),
            row(OperationMethods::Post, ".trace.v1.TraceService/Export", "Takes OTLP spans (gRPC)", "")
                .takes(&["application/grpc"])
                .gives("200", "application/grpc"),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &["/logs-api/insert"],
        errors: Errors::Otlp,
        rows: &[otlp("/opentelemetry/v1/logs", "Takes OTLP logs")],
    },
    Group {
        tag: "logs-ingest",
        at: &["/insert", "/logs-api/insert"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/ready", "Says whether logs are taken", ""),
            row(OperationMethods::Post, "/jsonline", "Takes JSON lines", OF_FIELDS)
                .takes(&[LINES, JSON])
                .gives("2XX", ""),
            row(OperationMethods::Post, "/journald/upload", "Takes entries of systemd's journal", OF_FIELDS)
                .takes(&["application/vnd.fdo.journal", BYTES])
                .gives("2XX", ""),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &[
            "/insert/searchengine",
            "/insert/elasticsearch",
            "/logs-api/insert/searchengine",
            "/logs-api/insert/elasticsearch",
        ],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Get, "", "Answers clients that ask what this is", ""),
            row(OperationMethods::Get, "/", "Answers clients that ask what this is", ""),
            row(OperationMethods::Any, "/{*path}", "Takes bulk requests, answers what clients ask before", OF_FIELDS)
                .takes(&[LINES, JSON])
                .gives("2XX", JSON),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &["/insert/aggregator", "/insert/loki", "/logs-api/insert/aggregator", "/logs-api/insert/loki"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/ready", "Says whether logs are taken", "").gives("200", TEXT),
            row(OperationMethods::Post, "/api/v1/push", "Takes streams of records", OF_STREAMS)
                .takes(OTLP)
                .gives("2XX", ""),
            row(OperationMethods::Post, "/loki/api/v1/push", "Takes streams of records", OF_STREAMS)
                .takes(OTLP)
                .gives("2XX", ""),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &["/loki"],
        errors: Errors::Plain,
        rows: &[row(OperationMethods::Post, "/api/v1/push", "Takes streams of records", OF_STREAMS)
            .takes(OTLP)
            .gives("2XX", "")],
    },
    Group {
        tag: "logs-ingest",
        at: &["/insert/saas", "/insert/datadog", "/logs-api/insert/saas", "/logs-api/insert/datadog"],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Post, "/api/v2/logs", "Takes lists of records", OF_FIELDS)
                .takes(&[JSON])
                .gives("2XX", JSON),
            row(OperationMethods::Any, "/api/v1/validate", "Answers clients that check their key", ""),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &["/services/collector", "/insert/splunk/services/collector", "/logs-api/insert/splunk/services/collector"],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Post, "", "Takes events", OF_FIELDS).takes(&[JSON]).gives("2XX", JSON),
            row(OperationMethods::Post, "/event", "Takes events", OF_FIELDS).takes(&[JSON]).gives("2XX", JSON),
            row(OperationMethods::Post, "/event/1.0", "Takes events", OF_FIELDS).takes(&[JSON]).gives("2XX", JSON),
            row(OperationMethods::Post, "/raw", "Takes lines as events", OF_LINES).takes(&[TEXT]).gives("2XX", JSON),
            row(OperationMethods::Post, "/raw/1.0", "Takes lines as events", OF_LINES)
                .takes(&[TEXT])
                .gives("2XX", JSON),
            row(OperationMethods::Get, "/health", "Says whether events are taken", ""),
            row(OperationMethods::Get, "/health/1.0", "Says whether events are taken", ""),
        ],
    },
    Group {
        tag: "logs-ingest",
        at: &["/api"],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Post, "/v2/logs", "Takes lists of records", OF_FIELDS)
                .takes(&[JSON])
                .gives("2XX", JSON),
            row(OperationMethods::Get, "/v1/validate", "Answers clients that check their key", ""),
        ],
    },
    Group {
        tag: "traces-ingest",
        at: &["/api/v2/spans", "/zipkin/api/v2/spans"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "", "Lists names of spans of a service", "serviceName!"),
            row(OperationMethods::Post, "", "Takes Zipkin's spans", "").takes(OTLP).gives("202", ""),
        ],
    },
    Group {
        tag: "traces-ingest",
        at: &["/api/traces", "/jaeger/api/traces"],
        errors: Errors::Mixed,
        rows: &[
            row(
                OperationMethods::Get,
                "",
                "Searches traces",
                "service operation tag tags start end limit minDuration maxDuration traceID segment",
            ),
            row(OperationMethods::Post, "", "Takes Jaeger's batches", "")
                .takes(&["application/x-thrift", BYTES])
                .gives("2XX", ""),
        ],
    },
];
