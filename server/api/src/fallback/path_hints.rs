//! Hints for paths that exist on other products: someone who points a client of another product at this server learns
//! below which prefix the matching API is.

use super::is_below;

/// What is told, and the paths of others at which, or below which, it is; the first one that fits counts.
const HINTS: &[(&str, &[&str])] = &[
    (
        "Quiver has no pages of its own; query it from Grafana and other clients",
        &["/ui", "/vmui", "/select/vmui", "/graph", "/web", "/app", "/login", "/dashboard", "/index.html"],
    ),
    (
        "health is at `/health/live` and `/health/ready`",
        &["/healthz", "/livez", "/readyz", "/api/health", "/healthcheck", "/status", "/ping"],
    ),
    (DESCRIPTIONS, &["/docs", "/swagger", "/api-docs", "/openapi.json", "/openapi.yaml"]),
    ("SQL is at `/sql-api/v1/query`", &["/sql", "/api/sql"]),
    ("spans of Zipkin's first version are not accepted; send the second to `/api/v2/spans`", &["/api/v1/spans"]),
    (
        "lines of InfluxDB are not accepted; Prometheus' remote write goes to `/metrics-api/api/v1/write`, OTLP to \
         `/v1/metrics`",
        &["/write", "/api/v2/write", "/influx", "/api/v1/influx"],
    ),
    (
        "metrics as text go to `/metrics-api/api/v1/import/prometheus`",
        &["/metrics/job", "/api/v1/import", "/metrics-api/api/v1/import"],
    ),
    (
        "points of Graphite, OpenTSDB and Datadog are not accepted; Prometheus' remote write goes to \
         `/metrics-api/api/v1/write`, OTLP to `/v1/metrics`",
        &["/api/put", "/render", "/metrics/find", "/api/v2/series", "/api/beta/sketches"],
    ),
    (
        "there is no export of lines: samples are read by remote read at `/metrics-api/api/v1/read`, and by queries",
        &["/api/v1/export", "/metrics-api/api/v1/export"],
    ),
    (
        "single series are not deleted: retention removes what is old; `POST /admin/backup` makes a snapshot",
        &["/api/v1/admin", "/metrics-api/api/v1/admin"],
    ),
    (
        "single rows are not deleted: retention removes what is old; `POST /admin/backup` makes a snapshot",
        &["/delete", "/logs-api/delete"],
    ),
    (
        "nothing has to be flushed or merged by hand: rows are found as soon as they were taken",
        &["/internal/force_flush", "/internal/force_merge"],
    ),
    ("remote write goes to `/metrics-api/api/v1/write`", &["/api/v1/push", "/metrics-api/api/v1/push", "/api/prom"]),
    ("Prometheus' API is below `/metrics-api`", &["/api/v1", "/federate", "/prometheus"]),
    ("settings are read anew by `POST /admin/reload`, and by SIGHUP", &["/-/reload", "/metrics-api/-/reload"]),
    ("Tempo's API is below `/tempo`", &["/api/search", "/api/v2/search", "/api/echo", "/api/status"]),
    (
        "of Loki's API only the intake is here, at `/loki/api/v1/push`; logs are queried in LogsQL, at \
         `/select/logsql/query`",
        &["/loki", "/insert/loki", "/logs-api/insert/loki", "/logs-api/loki"],
    ),
    ("Datadog's intake of logs is at `/api/v2/logs`", &["/v1/input"]),
    (
        "spans of agents of Datadog and Elastic, and what Grafana's Faro sends, are not accepted; OTLP goes to `/v1/traces`, \
         also from browsers, and Zipkin's second version to `/api/v2/spans`",
        &["/v0.3/traces", "/v0.4/traces", "/v0.5/traces", "/intake/v2", "/collect"],
    ),
    ("messages in GELF are not accepted; logs go as JSON lines to `/insert/jsonline`", &["/gelf"]),
    (
        "OTLP is accepted at `/v1/metrics`, `/v1/logs` and `/v1/traces`",
        &["/otlp", "/opentelemetry", "/metrics-api/v1", "/logs-api/v1"],
    ),
    ("profiles are not accepted, only metrics, logs and traces", &["/v1development", "/v1/profiles"]),
    ("analytics in the style of Cube are below `/olap-api`", &["/cubejs-api"]),
];

/// Hints for exactly these paths, and for none below them: base addresses of data sources, and other folders of our API.
const FOLDERS: &[(&str, &[&str])] = &[
    (
        "clients of Prometheus take this address; a query is at `/metrics-api/api/v1/query`",
        &["/metrics-api", "/metrics-api/api", "/metrics-api/api/v1"],
    ),
    (
        "clients of VictoriaLogs take `/logs-api` as address; a query is at `/logs-api/select/logsql/query`",
        &["/logs-api", "/logs-api/select", "/logs-api/select/logsql", "/select", "/select/logsql"],
    ),
    (
        "logs are sent to `/insert/jsonline`, `/insert/elasticsearch`, `/insert/loki/api/v1/push` and others; see \
         docs/logs-http.md",
        &["/insert", "/logs-api/insert"],
    ),
    ("clients of Tempo take this address; a search is at `/tempo/api/search`", &["/tempo", "/tempo/api"]),
    ("clients of Jaeger take this address; services are at `/jaeger/api/services`", &["/jaeger", "/jaeger/api"]),
    ("clients of Zipkin take this address; services are at `/zipkin/api/v2/services`", &["/zipkin", "/zipkin/api"]),
    ("statements go to `/sql-api/v1/query`, tables are listed at `/sql-api/v1/tables`", &["/sql-api", "/sql-api/v1"]),
    ("queries go to `/olap-api/v1/load`, members are listed at `/olap-api/v1/meta`", &["/olap-api", "/olap-api/v1"]),
    (DESCRIPTIONS, &["/api", "/platform-api", "/rulesapi"]),
    ("running queries are at `/admin/queries`; all calls are in docs/operation.md", &["/admin"]),
    ("the list has no slash at its end: `/traces`", &["/traces/"]),
];

/// The same of calls of gRPC, by service.
const CALLS: &[(&str, &[&str])] = &[
    (
        "spans are not taken in Jaeger's formats; send OTLP, or put an OpenTelemetry Collector in front",
        &["/jaeger.api_v2.CollectorService", "/jaeger.storage.v1.SpanWriterPlugin"],
    ),
    (
        "Jaeger's queries are answered over HTTP, below `/api` and `/api/v3`",
        &[
            "/jaeger.api_v2.QueryService",
            "/jaeger.api_v3.QueryService",
            "/jaeger.storage.v1.SpanReaderPlugin",
            "/jaeger.storage.v1.DependenciesReaderPlugin",
            "/jaeger.storage.v2.TraceReader",
            "/jaeger.storage.v2.DependencyReader",
        ],
    ),
    ("spans of Zipkin go to `/api/v2/spans`", &["/zipkin.proto3.SpanService"]),
];

const DESCRIPTIONS: &str = "all paths are described at `/platform-api/openapi.json`";

/// Says where it is, if it is known what is meant.
pub(super) fn hint(path: &str) -> Option<&'static str> {
    if path == "/" {
        return Some(
            "Quiver has no pages of its own. PromQL is below `/metrics-api`, LogsQL below `/logs-api`, logs are sent to paths \
             below `/insert`, Tempo's API is below `/tempo`, Jaeger's and Zipkin's are here, and all paths \
             are described at `/platform-api/openapi.json`",
        );
    }
    // Clients add a path to an address that ends in a slash. Below VictoriaLogs' paths that counts as one (`serve/slashes`).
    if path.contains("//") {
        return Some("two slashes stand together in this path; is there one at the end of the client's address?");
    }
    if has_tenant(path) {
        return Some(
            "paths name no tenant: Prometheus' API is below `/metrics-api`, logs are at `/select/logsql` and \
             `/insert/jsonline`",
        );
    }
    if path.ends_with("/_bulk") || path.starts_with("/_") || is_below(path, "/elasticsearch") {
        return Some(
            "of the search engine's API only the intake is here, below `/insert/elasticsearch`; `_bulk` is at \
             `/insert/elasticsearch/_bulk`",
        );
    }
    let folder = path.strip_suffix('/').unwrap_or(path);
    let of_folder = FOLDERS.iter().find(|(_, folders)| folders.contains(&folder) || folders.contains(&path));
    let below = || HINTS.iter().find(|(_, bases)| bases.iter().any(|base| is_below(path, base)));
    of_folder.or_else(below).map(|(hint, _)| *hint)
}

/// Whether it is a path of a cluster of Victoria's servers: `/select/0/prometheus`, `/insert/0:1/…`.
fn has_tenant(path: &str) -> bool {
    let rest = path.strip_prefix("/select/").or_else(|| path.strip_prefix("/insert/"));
    let tenant = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    tenant.starts_with(|c: char| c.is_ascii_digit()) && tenant.chars().all(|c| c.is_ascii_digit() || c == ':')
}

/// Says what there is instead of what others do at a path by another method.
pub(super) fn method_hint(path: &str) -> Option<&'static str> {
    let hint = "Tempo's diff is not supported; `GET /traces/compare?left=<id>&right=<id>` compares two traces";
    is_below(path, "/tempo/api/v2/traces/diff").then_some(hint)
}

/// Says what there is instead of a service of gRPC that others have.
pub(super) fn call_hint(path: &str) -> Option<&'static str> {
    CALLS.iter().find(|(_, services)| services.iter().any(|service| is_below(path, service))).map(|(hint, _)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_others() {
        for (path, place) in [
            ("/jaeger.api_v2.CollectorService/PostSpans", "OTLP"),
            ("/jaeger.storage.v1.SpanWriterPlugin/WriteSpan", "OTLP"),
            ("/jaeger.api_v3.QueryService/GetTrace", "`/api/v3`"),
            ("/jaeger.storage.v2.TraceReader/GetTraces", "`/api/v3`"),
            ("/zipkin.proto3.SpanService/Report", "`/api/v2/spans`"),
        ] {
            assert!(call_hint(path).is_some_and(|hint| hint.contains(place)), "{path}: {:?}", call_hint(path));
        }
        for path in ["/jaeger.api_v3.QueryServices/GetTrace", "/grpc.health.v1.Health/Check", "/", ""] {
            assert_eq!(call_hint(path), None, "{path}");
        }
    }

    #[test]
    fn paths_of_others() {
        for (path, place) in [
            ("/", "`/metrics-api`"),
            ("//health/ready", "two slashes"),
            ("/metrics-api//api/v1/query", "two slashes"),
            ("/graph", "no pages"),
            ("/login", "no pages"),
            ("/swagger", "`/platform-api/openapi.json`"),
            ("/write", "InfluxDB"),
            ("/api/v2/write", "`/v1/metrics`"),
            ("/metrics/job/backup", "`/metrics-api/api/v1/import/prometheus`"),
            ("/api/v1/import/prometheus", "`/metrics-api/api/v1/import/prometheus`"),
            ("/metrics-api/api/v1/push", "`/metrics-api/api/v1/write`"),
            ("/api/put", "OpenTSDB"),
            ("/render", "Graphite"),
            ("/api/v2/series", "Datadog"),
            ("/api/v1/export/native", "`/metrics-api/api/v1/read`"),
            ("/metrics-api/api/v1/export", "`/metrics-api/api/v1/read`"),
            ("/metrics-api/api/v1/admin/tsdb/delete_series", "retention"),
            ("/delete/run_task", "retention"),
            ("/logs-api/delete/active_tasks", "retention"),
            ("/internal/force_flush", "as soon as"),
            ("/metrics-api/v1/metrics", "`/v1/metrics`"),
            ("/select/0/prometheus/api/v1/query", "`/metrics-api`"),
            ("/insert/0:12/prometheus", "no tenant"),
            ("/logs-api/loki/api/v1/labels", "`/select/logsql/query`"),
            ("/elasticsearch/_bulk", "`/insert/elasticsearch/_bulk`"),
            ("/app-2026/_bulk", "`/insert/elasticsearch/_bulk`"),
            ("/_ilm/policy", "`/insert/elasticsearch`"),
            ("/readyz", "`/health/ready`"),
            ("/api/v1/query", "`/metrics-api`"),
            ("/api/v1/write", "`/metrics-api`"),
            ("/api/v1/status/buildinfo", "`/metrics-api`"),
            ("/prometheus/api/v1/query", "`/metrics-api`"),
            ("/-/reload", "`POST /admin/reload`"),
            ("/api/v1/push", "`/metrics-api/api/v1/write`"),
            ("/api/v1/spans", "`/api/v2/spans`"),
            ("/api/v2/search/tags", "`/tempo`"),
            ("/loki/api/v1/query_range", "`/select/logsql/query`"),
            ("/_bulk", "`/insert/elasticsearch`"),
            ("/v1/input", "`/api/v2/logs`"),
            ("/v0.4/traces", "`/v1/traces`"),
            ("/intake/v2/events", "`/v1/traces`"),
            ("/collect", "`/v1/traces`"),
            ("/gelf", "`/insert/jsonline`"),
            ("/otlp/v1/logs", "`/v1/logs`"),
            ("/v1development/profiles", "profiles are not accepted"),
            ("/cubejs-api/v1/load", "`/olap-api`"),
        ] {
            assert!(hint(path).is_some_and(|hint| hint.contains(place)), "{path}: {:?}", hint(path));
        }
        for path in [
            "/none",
            "/metrics-api/api/v1/none",
            "/metrics-api/none",
            "/select/x",
            "/internal/select/query",
            "/insert/0a/b",
            "/insert/none",
            "/api/v3/none",
            "/lokis",
            "/api/v10",
            "/graphs",
            "",
        ] {
            assert_eq!(hint(path), None, "{path}");
        }
    }

    /// Breaks if opening the address of a data source, or a folder, does not say what is in it.
    #[test]
    fn folders_of_our_own() {
        for (path, place) in [
            ("/metrics-api", "`/metrics-api/api/v1/query`"),
            ("/metrics-api/", "`/metrics-api/api/v1/query`"),
            ("/logs-api", "`/logs-api/select/logsql/query`"),
            ("/select/logsql/", "`/logs-api/select/logsql/query`"),
            ("/insert", "`/insert/jsonline`"),
            ("/tempo/", "`/tempo/api/search`"),
            ("/jaeger", "`/jaeger/api/services`"),
            ("/zipkin", "`/zipkin/api/v2/services`"),
            ("/sql-api", "`/sql-api/v1/query`"),
            ("/olap-api/v1", "`/olap-api/v1/load`"),
            ("/platform-api/", "`/platform-api/openapi.json`"),
            ("/admin", "`/admin/queries`"),
            ("/traces/", "`/traces`"),
        ] {
            assert!(hint(path).is_some_and(|hint| hint.contains(place)), "{path}: {:?}", hint(path));
        }
    }
}
