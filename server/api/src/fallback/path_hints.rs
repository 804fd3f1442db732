//! Where what others have at a path is here: who points a client made for another server at this one gets to know
//! below which path its API is.

use super::is_below;

/// What is told, and the paths of others at which, or below which, it is; the first one that fits counts.
const HINTS: &[(&str, &[&str])] = &[
    ("Quiver has no pages; Grafana and other clients ask it", &["/ui", "/vmui", "/select/vmui", "/graph"]),
    ("health is at `/health/live` and `/health/ready`", &["/healthz", "/livez", "/readyz", "/ready"]),
    ("spans of Zipkin's first version are not accepted; send the second to `/api/v2/spans`", &["/api/v1/spans"]),
    ("remote write goes to `/metrics-api/api/v1/write`", &["/api/v1/push", "/write", "/api/prom"]),
    ("Prometheus' API is below `/metrics-api`", &["/api/v1", "/federate", "/prometheus"]),
    ("settings are read anew by `POST /admin/reload`, and by SIGHUP", &["/-/reload", "/metrics-api/-/reload"]),
    ("Tempo's API is below `/tempo`", &["/api/search", "/api/v2/search", "/api/echo", "/api/status"]),
    (
        "of Loki's API only the intake is here, at `/loki/api/v1/push`; logs are queried in LogsQL, at \
         `/select/logsql/query`",
        &["/loki", "/insert/loki", "/logs-api/insert/loki"],
    ),
    (
        "of the search engine's API only the intake is here, below `/insert/elasticsearch`",
        &["/_bulk", "/_search", "/_msearch", "/_cluster", "/_cat", "/_nodes"],
    ),
    ("Datadog's intake of logs is at `/api/v2/logs`", &["/v1/input"]),
    ("OTLP is accepted at `/v1/metrics`, `/v1/logs` and `/v1/traces`", &["/otlp", "/opentelemetry"]),
    ("profiles are not accepted, only metrics, logs and traces", &["/v1development", "/v1/profiles"]),
    ("analytics in the style of Cube are below `/olap-api`", &["/cubejs-api"]),
];

/// Says where it is, if it is known what is meant.
pub(super) fn hint(path: &str) -> Option<&'static str> {
    if path == "/" {
        return Some(
            "Quiver has no pages; PromQL is below `/metrics-api`, LogsQL below `/logs-api`, Tempo's API below \
             `/tempo`, Jaeger's and Zipkin's are here, and all paths are described at `/platform-api/openapi.json`",
        );
    }
    HINTS.iter().find(|(_, bases)| bases.iter().any(|base| is_below(path, base))).map(|(hint, _)| *hint)
}

/// Says what there is instead of what others do at a path by another method.
pub(super) fn method_hint(path: &str) -> Option<&'static str> {
    let hint = "Tempo's diff is not supported; `GET /traces/compare?left=<id>&right=<id>` compares two traces";
    is_below(path, "/tempo/api/v2/traces/diff").then_some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_others() {
        for (path, place) in [
            ("/", "`/metrics-api`"),
            ("/graph", "no pages"),
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
            ("/otlp/v1/logs", "`/v1/logs`"),
            ("/v1development/profiles", "profiles are not accepted"),
            ("/cubejs-api/v1/load", "`/olap-api`"),
        ] {
            assert!(hint(path).is_some_and(|hint| hint.contains(place)), "{path}: {:?}", hint(path));
        }
        for path in ["/none", "/metrics-api/api/v1/none", "/api/v3/none", "/lokis", "/api/v10", "/graphs", ""] {
            assert_eq!(hint(path), None, "{path}");
        }
    }
}
