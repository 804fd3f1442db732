//! Refuses unknown parameters by name: with a misspelt one, another question would be answered than the one that was
//! meant.
//!
//! The known parameters of a route are those of its description ([`crate::openapi`]), so the two cannot differ.
//! Interfaces of other products ignore unknown parameters, as the originals do: [`PASSING`] lists them. Configuration
//! checks its parameters itself, since its lists accept the fields of their family (`config_api`).

use std::collections::HashMap;
use std::sync::LazyLock;

use quiver_traces::ParamError;

use crate::openapi;
use crate::segments::is_segment;

pub(crate) mod refusal;

/// Routes that pass over parameters which they do not know, and (`/` at the end) all below a path: their clients are made for
/// other servers, and send more than is needed. Of what is about the server itself: what probes and scrapers ask.
const PASSING: [&str; 23] = [
    "/metrics-api/",
    "/logs-api/",
    "/select/",
    "/insert/",
    "/loki/",
    "/services/",
    "/v1/",
    "/api/",
    "/jaeger/",
    "/zipkin/",
    "/tempo/",
    "/tempopb.StreamingQuerier/",
    "/realms/",
    "/olap-api/v1/load",
    "/olap-api/v1/subscribe",
    "/olap-api/v1/meta",
    "/olap-api/v1/dry-run",
    "/olap-api/v1/sql",
    "/health",
    "/health/",
    "/-/",
    "/ready",
    "/metrics",
];

/// Routes that look at names by themselves, in forms and bodies, too.
const BY_THEMSELVES: [&str; 1] = ["/sql-api/v1/query"];

/// Names by route, where they are looked at here.
static KNOWN: LazyLock<HashMap<String, Vec<&'static str>>> = LazyLock::new(|| {
    let mut known = openapi::parameters();
    known.retain(|route, _| !passes(route) && !BY_THEMSELVES.contains(&route.as_str()));
    known
});

/// Whether a route passes over what it does not know.
fn passes(route: &str) -> bool {
    PASSING.iter().any(|one| route == *one || (one.ends_with('/') && route.starts_with(one)))
}

/// Gives the first of some names that a route does not know; none where it passes over them.
pub(crate) fn unknown<N: AsRef<str>>(route: &str, mut names: impl Iterator<Item = N>) -> Option<N> {
    let known = KNOWN.get(route)?;
    names.find(|name| {
        // `segment.<variable>` goes with `segment`.
        let name = if is_segment(name.as_ref()) { "segment" } else { name.as_ref() };
        !known.contains(&name)
    })
}

/// What a route does know, to follow the name of what it does not; empty of a route whose names are looked at elsewhere.
pub(crate) fn known(route: &str) -> String {
    let Some(names) = KNOWN.get(route) else { return String::new() };
    // A route of several methods lists some more than once.
    let mut told: Vec<&str> = Vec::with_capacity(names.len());
    for name in names {
        if !told.contains(name) {
            told.push(name);
        }
    }
    if told.is_empty() { "; there are none here".to_owned() } else { format!("; known are {}", told.join(", ")) }
}

/// What is wrong with a name, as routes of traces tell it.
pub(crate) fn error(route: &str, name: &str) -> ParamError {
    if is_segment(name) {
        return ParamError::new(name, "segments do not act on this path");
    }
    ParamError::new(name, format!("unknown on this path{}", known(route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(route: &str, names: &[&'static str]) -> Option<&'static str> {
        unknown(route, names.iter().copied())
    }

    #[test]
    fn names_are_those_of_the_description() {
        for (route, names, expected) in [
            ("/traces", &["from", "q", "minSpans"][..], None),
            ("/traces", &["from", "limt", "q", "other"], Some("limt")),
            ("/traces", &["From"], Some("From")),
            ("/traces", &[""], Some("")),
            ("/traces", &["segment", "segment.cluster"], None),
            ("/traces", &["segments"], Some("segments")),
            ("/traces/compare", &["left", "right", "segment.x"], Some("segment.x")),
            ("/traces/services", &["minSpans"], Some("minSpans")),
            ("/traces/{id}/logs", &["before", "related", "explain"], None),
            ("/platform-api/traces/{id}/{format}", &["types", "download", "limit"], Some("limit")),
            ("/olap-api/v1/meta/values", &["member", "segment", "query"], Some("query")),
            ("/olap-api/v1/explain", &["query", "analyze"], Some("analyze")),
            ("/sql-api/v1/tables", &["schema"], Some("schema")),
            ("/admin/compact", &["force", "dryRun"], Some("dryRun")),
            ("/admin/queries/{id}", &["force"], Some("force")),
            ("/platform-api/openapi.json", &["pretty"], Some("pretty")),
            ("/rulesapi/swagger", &["x"], Some("x")),
        ] {
            assert_eq!(first(route, names), expected, "{route} {names:?}");
        }
    }

    /// What documents promise of other products' queries is in the description, from which clients are made.
    #[test]
    fn the_description_lists_what_is_read() {
        let described = openapi::parameters();
        for (route, names) in [
            ("/metrics-api/api/v1/query", &["explain", "lookback_delta"][..]),
            ("/metrics-api/api/v1/label/{name}/values", &["match[]", "explain"]),
            ("/metrics-api/api/v1/rules", &["exclude_alerts", "group_next_token", "match[]"]),
            (
                "/select/logsql/query",
                &["extra_filters", "extra_stream_filters", "time", "timeout", "explain", "offset"],
            ),
            ("/logs-api/select/logsql/tail", &["refresh_interval", "offset", "start_offset"]),
            ("/select/logsql/hits", &["fields_limit", "offset", "segment", "timeout"]),
            ("/select/logsql/field_names", &["filter", "limit"]),
            ("/select/logsql/facets", &["max_values_per_field", "max_value_len", "keep_const_fields"]),
            ("/select/logsql/stats_query", &["time"]),
            ("/select/logsql/stats_query_range", &["step", "offset"]),
        ] {
            for name in names {
                assert!(described[route].contains(name), "{route}: {name}");
            }
        }
    }

    #[test]
    fn what_is_known_is_told_once() {
        assert_eq!(known("/admin/compact"), "; known are force");
        assert_eq!(known("/admin/reload"), "; there are none here");
        assert_eq!(known("/metrics-api/api/v1/query"), "");
        let of_traces = known("/traces");
        assert!(of_traces.starts_with("; known are ") && of_traces.contains("minDuration, "), "{of_traces}");
        assert_eq!(of_traces.split(", ").filter(|name| *name == "limit").count(), 1, "{of_traces}");
        let told = error("/admin/compact", "forc").reason;
        assert_eq!(told, "unknown on this path; known are force");
        assert_eq!(error("/traces/compare", "segment.x").reason, "segments do not act on this path");
    }

    /// Grafana, amtool, the clients of Cube, probes: what these send has to be passed over.
    #[test]
    fn what_others_know_is_passed_over() {
        for route in [
            "/metrics-api/api/v1/query",
            "/metrics-api/federate",
            "/select/logsql/query",
            "/logs-api/select/logsql/hits",
            "/api/traces",
            "/jaeger/api/services",
            "/api/v2/alerts",
            "/zipkin/api/v2/traces",
            "/tempo/api/search",
            "/olap-api/v1/load",
            "/olap-api/v1/meta",
            "/realms/platform",
            "/health/ready",
            "/-/ready",
            "/ready",
            "/metrics",
            // These refuse by themselves.
            "/sql-api/v1/query",
            "/platform-api/segments",
            "/rulesapi/rules/{id}/state",
            "",
        ] {
            assert_eq!(first(route, &["zzz"]), None, "{route}");
        }
    }

    /// A list that names what is no more says nothing, and one that takes in more than it means says too much.
    #[test]
    fn each_exception_is_of_some_route() {
        let described = openapi::parameters();
        let ingest = ["/insert/", "/loki/", "/services/", "/v1/", "/realms/"];
        for one in PASSING.into_iter().filter(|one| !ingest.contains(one)) {
            let below = |route: &str| one.ends_with('/') && route.starts_with(one);
            assert!(described.keys().any(|route| route == one || below(route)), "{one}");
        }
        assert!(BY_THEMSELVES.iter().all(|route| described.contains_key(*route)));
        let own = ["/traces", "/platform-api/", "/rulesapi/", "/sql-api/", "/olap-api/", "/admin/"];
        for route in KNOWN.keys() {
            assert!(own.iter().any(|base| route.starts_with(base)), "{route} is none of ours");
        }
        assert!(KNOWN.len() > 30, "{}", KNOWN.len());
    }
}
