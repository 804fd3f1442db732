//! Classifies requests: the families by which metrics count them, and which requests change something.

use http::Method;

/// Requests that are counted together.
#[derive(Debug)]
pub(crate) struct Family {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    prefix: &'static str,
    /// Whether its requests only read, by whatever method.
    reads: bool,
}

const fn reads(name: &'static str, prefix: &'static str) -> Family {
    Family { name, prefix, reads: true }
}

const fn writes(name: &'static str, prefix: &'static str) -> Family {
    Family { name, prefix, reads: false }
}

/// All families: the first whose prefix fits counts, the last for the rest. A path that is not named may change something.
pub(crate) const FAMILIES: &[Family] = &[
    writes("write", "/metrics-api/api/v1/write"),
    writes("import", "/metrics-api/api/v1/import/"),
    writes("otlp", "/metrics-api/api/v1/otlp"),
    writes("otlp", "/v1/"),
    writes("otlp", "/insert/opentelemetry/"),
    writes("otlp_grpc", "/opentelemetry.proto.collector."),
    writes("logs_write", "/insert/"),
    writes("logs_write", "/logs-api/insert/"),
    writes("logs_write", "/loki/"),
    writes("logs_write", "/api/v2/logs"),
    writes("logs_write", "/api/v1/validate"),
    writes("logs_write", "/services/collector"),
    reads("metrics", "/metrics-api/"),
    reads("logs", "/logs-api/"),
    reads("logs", "/select/"),
    writes("spans_write", "/api/v2/spans"),
    writes("spans_write", "/zipkin/api/v2/spans"),
    writes("alerts", "/api/v2/alert"),
    writes("alerts", "/api/v2/silence"),
    writes("alerting", "/rulesapi/"),
    reads("traces", "/traces"),
    reads("traces", "/platform-api/traces"),
    reads("traces", "/api/"),
    reads("traces", "/tempo/"),
    reads("traces", "/tempopb."),
    reads("traces", "/jaeger/"),
    reads("traces", "/zipkin/"),
    reads("sql", "/sql-api/"),
    reads("olap", "/olap-api/"),
    reads("health", "/health"),
    reads("health", "/-/"),
    reads("health", "/ready"),
    reads("health", "/metrics"),
    writes("access", "/realms/"),
    writes("access", "/platform-api/rbac/"),
    writes("admin", "/admin/"),
    writes("other", ""),
];

/// Gives the place of a path's family in [`FAMILIES`].
pub(crate) fn family_of(path: &str) -> usize {
    FAMILIES.iter().position(|f| path.starts_with(f.prefix)).unwrap_or(FAMILIES.len() - 1)
}

/// Says whether a request may change something.
pub(crate) fn changes(family: usize, method: &Method) -> bool {
    !method.is_safe() && !FAMILIES[family].reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_changes() {
        let check = |path: &str, name: &str, by_post: bool| {
            let family = family_of(path);
            assert_eq!(FAMILIES[family].name, name, "{path}");
            assert_eq!(changes(family, &Method::POST), by_post, "{path}");
            assert!(!changes(family, &Method::GET), "{path}");
        };
        check("/metrics-api/api/v1/write", "write", true);
        check("/metrics-api/api/v1/query_range", "metrics", false);
        check("/logs-api/select/logsql/query", "logs", false);
        check("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "otlp_grpc", true);
        check("/insert/jsonline", "logs_write", true);
        check("/logs-api/insert/jsonline", "logs_write", true);
        check("/health", "health", false);
        check("/api/v2/spans", "spans_write", true);
        check("/api/v2/traces", "traces", false);
        check("/traces/search", "traces", false);
        check("/metrics", "health", false);
        check("/admin/flush", "admin", true);
        check("/what/comes", "other", true);
    }

    /// Prefixes that hold one another, and paths that only look like one.
    #[test]
    fn the_first_prefix_counts() {
        for (path, name) in [
            ("/metrics-api/api/v1/import/prometheus", "import"),
            ("/metrics-api/api/v1/otlp/v1/metrics", "otlp"),
            ("/metrics-api/federate", "metrics"),
            ("/v1/traces", "otlp"),
            ("/insert/opentelemetry/v1/logs", "otlp"),
            ("/insert/elasticsearch/_bulk", "logs_write"),
            ("/loki/api/v1/push", "logs_write"),
            ("/api/v2/logs", "logs_write"),
            ("/api/v1/validate", "logs_write"),
            ("/services/collector/event", "logs_write"),
            ("/zipkin/api/v2/spans", "spans_write"),
            ("/zipkin/api/v2/traces", "traces"),
            ("/api/v2/alerts/groups", "alerts"),
            ("/api/v2/silence/7", "alerts"),
            ("/api/v2/status", "traces"),
            ("/tempo/api/search", "traces"),
            ("/tempopb.StreamingQuerier/Search", "traces"),
            ("/rulesapi/rules", "alerting"),
            ("/sql-api/v1/query", "sql"),
            ("/olap-api/v1/load", "olap"),
            ("/realms/platform", "access"),
            ("/platform-api/rbac/users", "access"),
            ("/platform-api/traces/7/otlp", "traces"),
            ("/platform-api/segments", "other"),
            ("/bt-detection-rules", "other"),
            ("/-/ready", "health"),
            ("/ready", "health"),
            ("/", "other"),
            ("", "other"),
            ("/Insert/jsonline", "other"),
        ] {
            assert_eq!(FAMILIES[family_of(path)].name, name, "{path}");
        }
    }

    /// Whatever reads only has no change by any method, all else has one by each that is not safe.
    #[test]
    fn methods_that_change() {
        for (n, family) in FAMILIES.iter().enumerate() {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(changes(n, &method), !family.reads, "{} {method}", family.name);
            }
            for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
                assert!(!changes(n, &method), "{} {method}", family.name);
            }
        }
        assert!(FAMILIES.last().is_some_and(|rest| rest.prefix.is_empty() && !rest.reads), "what is new may change");
    }
}
