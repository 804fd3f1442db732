//! Operations that query telemetry.

use super::{Errors, FORM, Group, JSON, LINES, OperationMethods, PROTOBUF, Row, TEXT, row};

/// A method of gRPC.
const fn streamed(path: &'static str, summary: &'static str) -> Row {
    row(OperationMethods::Post, path, summary, "").takes(&["application/grpc"]).gives("200", "application/grpc")
}

/// Parameters that select spans, followed by those of the operation.
macro_rules! of_spans {
    ($more:literal) => {
        concat!(
            "from to service operation instance env kind tag filter minDuration maxDuration durationOf error errorOf \
             root segment explain ",
            $more
        )
    };
}

/// Parameters that select spans of a trace, followed by those of the operation.
macro_rules! of_trace {
    ($more:literal) => {
        concat!("service start_time end_time explain ", $more)
    };
}

/// Parameters of every query in LogsQL, followed by those of the operation.
macro_rules! of_logs {
    ($more:literal) => {
        concat!("query! start end time timeout extra_filters extra_stream_filters ignore_pipes explain segment ", $more)
    };
}

/// Parameters of a search by Jaeger's third API; each may also be written in camel case.
const V3_SEARCH: &str = "query.service_name query.operation_name query.attributes query.start_time_min! \
    query.start_time_max! query.duration_min query.duration_max query.search_depth query.raw_traces segment";
/// Parameters of Jaeger's figures over time.
const JAEGER_FIGURES: &str = "service! endTs lookback step ratePer spanKind groupByOperation";

/// Formats of SQL results.
const SQL_FORMS: &str = "application/json, application/x-ndjson, text/csv, application/vnd.apache.arrow.stream, \
    application/vnd.apache.parquet";

pub(super) const GROUPS: &[Group] = &[
    Group {
        tag: "metrics",
        at: &["/metrics-api"],
        errors: Errors::Prometheus,
        rows: &[
            row(
                OperationMethods::Form,
                "/api/v1/query",
                "Runs PromQL at an instant",
                "query! time timeout limit lookback_delta stats explain segment",
            ),
            row(
                OperationMethods::Form,
                "/api/v1/query_range",
                "Runs PromQL over a range",
                "query! start! end! step! timeout limit lookback_delta stats explain segment",
            ),
            row(OperationMethods::Form, "/api/v1/format_query", "Formats PromQL", "query!"),
            row(OperationMethods::Form, "/api/v1/parse_query", "Parses PromQL", "query!"),
            row(
                OperationMethods::Form,
                "/api/v1/series",
                "Finds series by selectors",
                "match[]! start end limit explain segment",
            ),
            row(
                OperationMethods::Form,
                "/api/v1/labels",
                "Lists names of labels",
                "match[] start end limit explain segment",
            ),
            row(
                OperationMethods::Get,
                "/api/v1/label/{name}/values",
                "Lists values of a label",
                "match[] start end limit explain segment",
            ),
            row(
                OperationMethods::Get,
                "/api/v1/metadata",
                "Lists type, help and unit of metrics",
                "metric limit limit_per_metric explain",
            ),
            row(
                OperationMethods::Form,
                "/api/v1/query_exemplars",
                "Finds exemplars",
                "query! start end explain segment",
            ),
            row(
                OperationMethods::Get,
                "/api/v1/rules",
                "Lists rules as Prometheus does",
                "type rule_name[] rule_group[] file[] match[] exclude_alerts group_limit group_next_token",
            ),
            row(OperationMethods::Get, "/api/v1/alerts", "Lists alerts as Prometheus does", ""),
            row(OperationMethods::Get, "/api/v1/status/buildinfo", "Says what was built", ""),
            row(OperationMethods::Get, "/api/v1/status/config", "Shows settings", ""),
            row(OperationMethods::Get, "/api/v1/status/flags", "Shows flags", ""),
            row(OperationMethods::Get, "/api/v1/status/runtimeinfo", "Says how the server runs", ""),
            row(OperationMethods::Get, "/api/v1/status/walreplay", "Says how far the replay is", ""),
            row(OperationMethods::Get, "/api/v1/status/tsdb", "Says what there is most of", "limit explain"),
            row(OperationMethods::Get, "/api/v1/features", "Lists features", ""),
            row(OperationMethods::Get, "/api/v1/targets", "Lists targets: there are none, nothing is scraped", ""),
            row(OperationMethods::Get, "/api/v1/targets/metadata", "Lists metadata of targets", ""),
            row(OperationMethods::Get, "/api/v1/alertmanagers", "Lists Alertmanagers: there are none", ""),
        ],
    },
    Group {
        tag: "metrics",
        at: &["/metrics-api"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/federate", "Gives series in the text format", "match[]! segment")
                .gives("200", TEXT),
            row(OperationMethods::Post, "/api/v1/read", "Answers remote-read", "")
                .takes(&[PROTOBUF])
                .gives("200", PROTOBUF),
            row(OperationMethods::Get, "/", "Answers clients that ask whether this is a Prometheus", "")
                .gives("200", TEXT),
            row(OperationMethods::Get, "/-/healthy", "Says that the server lives", "").gives("200", TEXT),
            row(OperationMethods::Get, "/-/ready", "Says whether the server answers", "").gives("200", TEXT),
        ],
    },
    Group {
        tag: "logs",
        at: &["/select/logsql", "/logs-api/select/logsql"],
        errors: Errors::Mixed,
        rows: &[
            row(OperationMethods::Form, "/query", "Runs LogsQL", of_logs!("limit offset sort_direction format"))
                .gives("200", "application/x-ndjson, application/stream+json, application/json, text/csv"),
            row(
                OperationMethods::Form,
                "/tail",
                "Follows records as they come",
                of_logs!("refresh_interval offset start_offset"),
            )
            .gives("200", LINES),
            row(
                OperationMethods::Form,
                "/hits",
                "Counts records over time",
                of_logs!("step offset field fields_limit"),
            ),
            row(OperationMethods::Form, "/field_names", "Lists names of fields", of_logs!("filter limit")),
            row(OperationMethods::Form, "/field_values", "Lists values of a field", of_logs!("field! filter limit")),
            row(OperationMethods::Form, "/streams", "Lists streams", of_logs!("filter limit")),
            row(OperationMethods::Form, "/stream_ids", "Lists ids of streams", of_logs!("filter limit")),
            row(
                OperationMethods::Form,
                "/stream_field_names",
                "Lists names of fields of streams",
                of_logs!("filter limit"),
            ),
            row(
                OperationMethods::Form,
                "/stream_field_values",
                "Lists values of a field of streams",
                of_logs!("field! filter limit"),
            ),
            row(
                OperationMethods::Form,
                "/facets",
                "Lists the commonest values of all fields",
                of_logs!("limit max_values_per_field max_value_len keep_const_fields"),
            ),
            row(
                OperationMethods::Form,
                "/query_time_range",
                "Says which times a query asks for",
                "query! start end time extra_filters extra_stream_filters ignore_pipes segment",
            ),
            row(OperationMethods::Form, "/stats_query", "Runs statistics at an instant", of_logs!("")),
            row(OperationMethods::Form, "/stats_query_range", "Runs statistics over a range", of_logs!("step offset")),
        ],
    },
    Group {
        tag: "logs",
        at: &["/logs-api"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/health", "Says whether the server answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/select/tenant_ids", "Lists tenants", "start end"),
            row(OperationMethods::Get, "/select/buildinfo", "Says what was built", ""),
        ],
    },
    Group {
        tag: "logs",
        at: &["/select"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/tenant_ids", "Lists tenants", "start end"),
            row(OperationMethods::Get, "/buildinfo", "Says what was built", ""),
        ],
    },
    Group {
        tag: "traces",
        at: &["/traces"],
        errors: Errors::Problem,
        rows: &[
            row(
                OperationMethods::Json,
                "",
                "Searches traces",
                of_spans!("q ids spans minSpans maxSpans minServices sort limit cursor"),
            ),
            row(OperationMethods::Json, "/services", "Lists services", of_spans!("q limit names")),
            row(OperationMethods::Json, "/operations", "Lists operations of services", of_spans!("q limit")),
            row(OperationMethods::Json, "/instances", "Lists instances of services", of_spans!("limit")),
            row(OperationMethods::Json, "/tags", "Lists keys of attributes", of_spans!("scope q limit")),
            row(
                OperationMethods::Json,
                "/tags/{key}/values",
                "Lists values of an attribute",
                of_spans!("scope q limit"),
            ),
            row(OperationMethods::Json, "/dependencies", "Counts calls between services", of_spans!("depth")),
            row(OperationMethods::Json, "/histogram", "Counts traces over time", of_spans!("q step by measure")),
            row(
                OperationMethods::Json,
                "/heatmap",
                "Counts traces over time and duration",
                of_spans!("q step buckets"),
            ),
            row(OperationMethods::Json, "/facets", "Lists the commonest values", of_spans!("q keys limit")),
            row(
                OperationMethods::Json,
                "/difference",
                "Says in what some traces differ from others",
                of_spans!("q select selectFilter limit"),
            ),
            row(OperationMethods::Json, "/compare", "Compares traces", "left right explain"),
            row(OperationMethods::Get, "/{id}", "Gives a trace", of_trace!("download")),
            row(OperationMethods::Get, "/{id}/summary", "Sums a trace up", of_trace!("")),
            row(OperationMethods::Get, "/{id}/statistics", "Gives figures of a trace", of_trace!("groupBy")),
            row(OperationMethods::Get, "/{id}/critical-path", "Gives what a trace waited for", of_trace!("")),
            row(OperationMethods::Get, "/{id}/similar", "Finds traces of the same shape", of_trace!("limit")),
            row(
                OperationMethods::Get,
                "/{id}/logs",
                "Gives records of a trace",
                of_trace!("before after limit related"),
            ),
            row(
                OperationMethods::Get,
                "/{id}/exemplars",
                "Gives exemplars of a trace",
                of_trace!("before after limit"),
            ),
        ],
    },
    Group {
        tag: "traces",
        at: &["/platform-api/traces"],
        errors: Errors::ProblemOrPlain,
        rows: &[row(
            OperationMethods::Get,
            "/{id}/{format}",
            "Exports a trace",
            of_trace!("types links extras download"),
        )
        .gives("200", JSON)],
    },
    Group {
        tag: "jaeger",
        at: &["/api", "/jaeger/api"],
        errors: Errors::Json,
        rows: &[
            row(OperationMethods::Get, "/services", "Lists services", "segment"),
            row(
                OperationMethods::Get,
                "/services/{service}/operations",
                "Lists operations of a service",
                "spanKind segment",
            ),
            row(OperationMethods::Get, "/operations", "Lists operations", "service! spanKind segment"),
            row(OperationMethods::Get, "/traces/{id}", "Gives a trace", "start end raw prettyPrint"),
            row(
                OperationMethods::Get,
                "/dependencies",
                "Counts calls between services",
                "service endTs lookback segment",
            ),
            row(OperationMethods::Post, "/transform", "Turns OTLP into Jaeger's form", "").takes(&[JSON]),
            row(OperationMethods::Post, "/archive/{id}", "Says that there is no archive of traces", "")
                .gives("501", JSON),
            row(
                OperationMethods::Get,
                "/metrics/latencies",
                "Gives latencies of services",
                "service! quantile! endTs lookback step ratePer spanKind groupByOperation",
            ),
            row(OperationMethods::Get, "/metrics/calls", "Gives rates of calls", JAEGER_FIGURES),
            row(OperationMethods::Get, "/metrics/errors", "Gives rates of errors", JAEGER_FIGURES),
            row(OperationMethods::Get, "/metrics/minstep", "Gives the shortest step", ""),
            row(OperationMethods::Get, "/v3/services", "Lists services", "segment"),
            row(OperationMethods::Get, "/v3/operations", "Lists operations", "service span_kind segment"),
            row(OperationMethods::Get, "/v3/trace-summaries", "Searches traces, and sums them up", V3_SEARCH),
            row(OperationMethods::Get, "/v3/traces", "Searches traces", V3_SEARCH),
            row(OperationMethods::Get, "/v3/traces/{id}", "Gives a trace", "start_time end_time raw_traces"),
        ],
    },
    Group {
        tag: "zipkin",
        at: &["/api/v2", "/zipkin/api/v2"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/services", "Lists services", "segment"),
            row(OperationMethods::Get, "/remoteServices", "Lists services that a service calls", "serviceName!"),
            row(
                OperationMethods::Get,
                "/traces",
                "Searches traces",
                "serviceName spanName remoteServiceName annotationQuery minDuration maxDuration endTs lookback limit \
                 segment",
            ),
            row(OperationMethods::Get, "/trace/{id}", "Gives a trace", ""),
            row(OperationMethods::Get, "/traceMany", "Gives traces", "traceIds!"),
            row(OperationMethods::Get, "/dependencies", "Counts calls between services", "endTs! lookback segment"),
            row(OperationMethods::Get, "/autocompleteKeys", "Lists keys of tags", ""),
            row(OperationMethods::Get, "/autocompleteValues", "Lists values of a tag", "key!"),
        ],
    },
    Group {
        tag: "tempo",
        at: &["/tempo/api"],
        errors: Errors::Plain,
        rows: &[
            row(OperationMethods::Get, "/echo", "Answers", "").gives("200", TEXT),
            row(OperationMethods::Get, "/status/buildinfo", "Says what was built", ""),
            row(OperationMethods::Get, "/traces/{id}", "Gives a trace", "start end"),
            row(
                OperationMethods::Get,
                "/v2/traces/{id}",
                "Gives a trace, or a part of it",
                "start end q keep_hierarchy ancestor_depth match_depth",
            ),
            row(
                OperationMethods::Get,
                "/search",
                "Searches traces by TraceQL",
                "q tags start end limit spss minDuration maxDuration segment",
            ),
            row(OperationMethods::Get, "/search/tags", "Lists names of attributes", "q scope start end limit"),
            row(
                OperationMethods::Get,
                "/v2/search/tags",
                "Lists names of attributes by scope",
                "q scope start end limit",
            ),
            row(OperationMethods::Get, "/search/tag/{tag}/values", "Lists values of an attribute", "q start end limit"),
            row(
                OperationMethods::Get,
                "/v2/search/tag/{tag}/values",
                "Lists values of an attribute, typed",
                "q start end limit",
            ),
            row(
                OperationMethods::Get,
                "/metrics/query_range",
                "Runs TraceQL metrics over a range",
                "q! start end since step exemplars maxSeries",
            ),
            row(
                OperationMethods::Get,
                "/metrics/query",
                "Runs TraceQL metrics at an instant",
                "q! start end since maxSeries",
            ),
        ],
    },
    Group {
        tag: "tempo",
        at: &["/tempopb.StreamingQuerier"],
        errors: Errors::Grpc,
        rows: &[
            streamed("/Search", "Searches traces by TraceQL or by tags (gRPC)"),
            streamed("/SearchTags", "Lists names of attributes (gRPC)"),
            streamed("/SearchTagsV2", "Lists names of attributes by scope (gRPC)"),
            streamed("/SearchTagValues", "Lists values of an attribute (gRPC)"),
            streamed("/SearchTagValuesV2", "Lists values of an attribute, typed (gRPC)"),
            streamed("/MetricsQueryRange", "Runs TraceQL metrics over a range (gRPC)"),
            streamed("/MetricsQueryInstant", "Runs TraceQL metrics at an instant (gRPC)"),
        ],
    },
    Group {
        tag: "sql",
        at: &["/sql-api/v1"],
        errors: Errors::Problem,
        rows: &[
            row(OperationMethods::Get, "/query", "Runs SQL", "query! format limit time_zone params explain segment")
                .gives("200", SQL_FORMS),
            row(OperationMethods::Post, "/query", "Runs SQL", "query format limit time_zone params explain segment")
                .takes(&[JSON, FORM, "application/sql"])
                .gives("200", SQL_FORMS),
            row(OperationMethods::Get, "/tables", "Lists tables and columns", ""),
        ],
    },
    Group {
        tag: "analytics",
        at: &["/olap-api/v1"],
        errors: Errors::Query,
        rows: &[
            row(OperationMethods::Get, "/load", "Runs a query of models", "query!"),
            row(OperationMethods::Post, "/load", "Runs a query of models", "").takes(&[JSON]),
            row(OperationMethods::Get, "/subscribe", "Runs a query of models anew as rows come", "query!"),
            row(OperationMethods::Post, "/subscribe", "Runs a query of models anew as rows come", "").takes(&[JSON]),
            row(OperationMethods::Get, "/meta", "Lists models", ""),
            row(OperationMethods::Get, "/dry-run", "Checks a query of models", "query!"),
            row(OperationMethods::Post, "/dry-run", "Checks a query of models", "").takes(&[JSON]),
            row(OperationMethods::Post, "/explain", "Explains a query of models", "query segment").takes(&[JSON]),
            row(
                OperationMethods::Get,
                "/sql",
                "Prints the plan of a query, or of a statement over models, as SQL",
                "query! format",
            ),
            row(
                OperationMethods::Post,
                "/sql",
                "Prints the plan of a query, or of a statement over models, as SQL",
                "",
            )
            .takes(&[JSON]),
            row(OperationMethods::Post, "/cubesql", "Runs a statement over models", "query segment").takes(&[JSON]),
            row(OperationMethods::Post, "/drill", "Shows the rows behind a measure", "query segment").takes(&[JSON]),
            row(
                OperationMethods::Get,
                "/meta/values",
                "Lists values of a dimension",
                "member! search dateRange timezone limit segment",
            ),
        ],
    },
];
