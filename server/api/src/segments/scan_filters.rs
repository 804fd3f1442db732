//! Applies segments below the scans of metrics, SQL and analytics: they become a part of the request's access, so
//! that no path to a scan, and no cache, can bypass them.

use quiver_traces::condition::filter_of;
use quiver_types::logs::LogFilter;
use quiver_types::spans::SpanFilter;
use quiver_types::{AccessSegment, Domain, Result};

use super::series::{lists_of, product};
use super::{SegmentFilter, active_segments, bound, logs};
use crate::state::AppState;

/// Paths below `/metrics-api` on which segments act.
const METRICS: [&str; 6] = [
    "/api/v1/query",
    "/api/v1/query_range",
    "/api/v1/query_exemplars",
    "/api/v1/series",
    "/api/v1/labels",
    "/federate",
];
/// Other paths, besides those of logs and traces.
const OTHERS: [&str; 9] = [
    "/sql-api/v1/query",
    "/olap-api/v1/load",
    "/olap-api/v1/subscribe",
    "/olap-api/v1/sql",
    "/olap-api/v1/cubesql",
    "/olap-api/v1/explain",
    "/olap-api/v1/drill",
    "/olap-api/v1/meta/values",
    "/olap-api/v1/dry-run",
];

/// Search and list paths of other tools' trace APIs. A trace requested by id is returned whole.
const TRACES: [&str; 13] = [
    "/api/services",
    "/api/operations",
    "/api/traces",
    "/api/dependencies",
    "/api/v3/services",
    "/api/v3/operations",
    "/api/v3/traces",
    "/api/v3/trace-summaries",
    "/api/v2/services",
    "/api/v2/spans",
    "/api/v2/traces",
    "/api/v2/dependencies",
    "/tempo/api/search",
];

/// Whether a parameter belongs to segments.
pub(crate) fn is_segment(name: &str) -> bool {
    name == "segment" || name.starts_with("segment.")
}

/// Whether segments apply to a path.
pub(crate) fn acts_on(path: &str) -> bool {
    let path = path.strip_prefix("/metrics-api").unwrap_or(path);
    let values = path.strip_prefix("/api/v1/label/").is_some_and(|rest| rest.ends_with("/values"));
    values || METRICS.contains(&path) || OTHERS.contains(&path)
}

/// Whether segments apply to a path of another tool's trace API.
pub(crate) fn acts_on_traces(path: &str) -> bool {
    let path = path.strip_prefix("/jaeger").or_else(|| path.strip_prefix("/zipkin")).unwrap_or(path);
    let operations = path.strip_prefix("/api/services/").is_some_and(|rest| rest.ends_with("/operations"));
    operations || TRACES.contains(&path)
}

/// Restricts all queries of the current request to the segments in its parameters.
///
/// # Errors
/// Invalid: see [`super::of_request`]; or a condition that the rows of a signal cannot be tested for.
pub(crate) fn begin<'a>(
    state: &AppState,
    parameters: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    domains: &[Domain],
) -> Result<()> {
    let mut all = Vec::new();
    for domain in domains {
        let Some(signal) = signal_of(*domain) else { continue };
        let segments = bound(state, parameters.clone(), signal)?;
        all.extend(within(state, *domain, &segments)?.map(|within| (*domain, within)));
    }
    active_segments::add(all);
    Ok(())
}

/// The signal's name in conditions of segments.
pub(super) fn signal_of(domain: Domain) -> Option<&'static str> {
    match domain {
        Domain::Metrics => Some("metrics"),
        Domain::Logs => Some("logs"),
        Domain::Traces => Some("spans"),
        _ => None,
    }
}

/// Converts segments for the scans of a domain; `None` if they do not restrict it.
pub(super) fn within(
    state: &AppState,
    domain: Domain,
    segments: &[(String, SegmentFilter)],
) -> Result<Option<AccessSegment>> {
    if segments.is_empty() {
        return Ok(None);
    }
    let identity = segments.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join("\u{0}");
    let rows = match domain {
        Domain::Metrics => quiver_types::SegmentRows::Series(series(state, segments)?),
        Domain::Logs => quiver_types::SegmentRows::Logs(LogFilter::And(segments.iter().map(log_rows).collect())),
        _ => quiver_types::SegmentRows::Spans(span_rows(segments)?),
    };
    Ok(Some(AccessSegment { identity, rows }))
}

fn series(state: &AppState, segments: &[(String, SegmentFilter)]) -> Result<Vec<Vec<quiver_types::Matcher>>> {
    let labels = state.alertd.router.service_labels();
    let mut lists = vec![Vec::new()];
    for (_, segment) in segments {
        lists = match segment {
            SegmentFilter::ToNothing => Vec::new(),
            SegmentFilter::To(condition) => product(&lists, &lists_of(condition, labels)?)?,
        };
    }
    Ok(lists)
}

fn log_rows((_, segment): &(String, SegmentFilter)) -> LogFilter {
    match segment {
        SegmentFilter::ToNothing => LogFilter::None,
        SegmentFilter::To(condition) => logs::rows_of(condition),
    }
}

fn span_rows(segments: &[(String, SegmentFilter)]) -> Result<SpanFilter> {
    segments.iter().try_fold(SpanFilter::All, |all, (_, segment)| {
        Ok(all.and(match segment {
            SegmentFilter::ToNothing => SpanFilter::None,
            SegmentFilter::To(condition) => filter_of(condition)?,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_on_which_segments_act() {
        let yes =
            ["/metrics-api/api/v1/query", "/api/v1/label/job/values", "/sql-api/v1/query", "/metrics-api/federate"];
        let no =
            ["/metrics-api/api/v1/metadata", "/api/v1/label/job", "/olap-api/v1/meta", "/metrics-api/api/v1/rules"];
        assert!(yes.iter().all(|path| acts_on(path)) && !no.iter().any(|path| acts_on(path)));
        let yes = ["/jaeger/api/traces", "/api/v3/services", "/api/services/cart/operations", "/zipkin/api/v2/traces"];
        let no = ["/jaeger/api/traces/1", "/jaeger/api/metrics/calls", "/tempo/api/traces/1", "/api/v2/trace/1"];
        assert!(yes.iter().all(|path| acts_on_traces(path)) && !no.iter().any(|path| acts_on_traces(path)));
    }

    #[test]
    fn parameters_of_segments() {
        for (name, expected) in [
            ("segment", true),
            ("segment.env", true),
            ("segment.", true),
            ("segments", false),
            ("Segment", false),
            ("segment_env", false),
            ("segment[]", false),
            ("x.segment", false),
            ("", false),
        ] {
            assert_eq!(is_segment(name), expected, "{name}");
        }
    }

    #[test]
    fn paths_are_taken_whole() {
        for (path, expected) in [
            ("/metrics-api/api/v1/label/a.b/values", true),
            ("/api/v1/labels", true),
            ("/api/v1/query", true),
            ("/api/v1/query/", false),
            ("/api/v1/query_rang", false),
            ("/x/api/v1/query", false),
            ("/metrics-apix/api/v1/query", false),
            ("/api/v1/label/values", false),
            ("/api/v1/status/tsdb", false),
            ("/olap-api/v1/meta/values", true),
            ("/olap-api/v1/cubesql", true),
            ("/olap-api/v1/meta", false),
            ("", false),
            ("/", false),
        ] {
            assert_eq!(acts_on(path), expected, "{path}");
        }
        for (path, expected) in [
            ("/api/traces", true),
            ("/jaeger/api/services/a%2Fb/operations", true),
            ("/zipkin/api/v2/dependencies", true),
            ("/tempo/api/search", true),
            ("/tempo/api/v2/search/tags", false),
            ("/api/v3/traces/1", false),
            ("/api/v2/traceMany", false),
            ("/api/archive/1", false),
            ("/api/transform", false),
        ] {
            assert_eq!(acts_on_traces(path), expected, "{path}");
        }
    }

    #[test]
    fn signals_that_are_narrowed() {
        let named = [Domain::Metrics, Domain::Logs, Domain::Traces].map(signal_of);
        assert_eq!(named, [Some("metrics"), Some("logs"), Some("spans")]);
        for other in [Domain::Alerts, Domain::Alerting, Domain::Rbac] {
            assert_eq!(signal_of(other), None, "{other:?}");
        }
    }
}
