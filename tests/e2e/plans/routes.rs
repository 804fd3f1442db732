//! The table of all routes: query routes, and why each of the others is none.

use std::collections::BTreeSet;

use quiver_tests::server::{Options, Server};

/// A route: name of its file, path with parameters, what its queries are counted under.
pub(super) struct Route(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

/// All routes of queries. `$s`, `$e`: start and end in seconds; `$ns`, `$ne`: in nanoseconds; `$ms`: the end in milliseconds.
pub(super) const ROUTES: &[Route] = &[
    Route("query", "/metrics-api/api/v1/query?query=sum(m_total)&time=$s", "promql"),
    Route("query_range", "/metrics-api/api/v1/query_range?query=rate(m_total[5m])&start=$s&end=$e&step=60", "promql"),
    Route("query_count_values", "/metrics-api/api/v1/query?query=count_values(\"v\",m_total)&time=$s", "promql"),
    Route("query_exemplars", "/metrics-api/api/v1/query_exemplars?query=m_total&start=$s&end=$e", "series"),
    Route("series", "/metrics-api/api/v1/series?match[]=m_total&match[]={job=\"x\"}&limit=5", "series"),
    Route("labels", "/metrics-api/api/v1/labels?limit=5", "series"),
    Route("label_values", "/metrics-api/api/v1/label/job/values?match[]=m_total", "series"),
    Route("metadata", "/metrics-api/api/v1/metadata?limit=2&limit_per_metric=1", "series"),
    Route("status_tsdb", "/metrics-api/api/v1/status/tsdb?limit=3", "series"),
    Route("logs_query", "/select/logsql/query?query=*&start=$s&end=$e", "logsql"),
    Route("logs_hits", "/select/logsql/hits?query=*&start=$s&end=$e&step=1m", "logsql"),
    Route("logs_stats_query", "/select/logsql/stats_query?query=*|stats%20count()&time=$e", "logsql"),
    Route(
        "logs_stats_query_range",
        "/select/logsql/stats_query_range?query=*|stats%20count()&start=$s&end=$e&step=1h",
        "logsql",
    ),
    Route("logs_facets", "/select/logsql/facets?query=*&start=$s&end=$e", "logsql"),
    Route("logs_field_names", "/select/logsql/field_names?query=*&start=$s&end=$e", "logsql"),
    Route("logs_field_values", "/select/logsql/field_values?query=*&field=_msg&start=$s&end=$e", "logsql"),
    Route("logs_stream_field_names", "/select/logsql/stream_field_names?query=*&start=$s&end=$e", "logsql"),
    Route("logs_stream_field_values", "/select/logsql/stream_field_values?query=*&field=app&start=$s&end=$e", "logsql"),
    Route("logs_stream_ids", "/select/logsql/stream_ids?query=*&start=$s&end=$e", "logsql"),
    Route("logs_streams", "/select/logsql/streams?query=*&start=$s&end=$e", "logsql"),
    Route("traces", "/traces?from=$ns&to=$ne&service=front", "traces"),
    Route("traces_any_span", "/traces?from=$ns&to=$ne&spans=any&service=front&kind=client", "traces"),
    Route("traces_by_duration", "/traces?from=$ns&to=$ne&sort=-duration", "traces"),
    Route("traces_services", "/traces/services?from=$ns&to=$ne", "traces"),
    Route("traces_operations", "/traces/operations?from=$ns&to=$ne&q=op", "traces"),
    Route("traces_operations_filtered", "/traces/operations?from=$ns&to=$ne&kind=client", "traces"),
    Route("traces_instances", "/traces/instances?from=$ns&to=$ne", "traces"),
    Route("traces_tags", "/traces/tags?from=$ns&to=$ne", "traces"),
    Route("traces_tag_values", "/traces/tags/peer.service/values?from=$ns&to=$ne", "traces"),
    Route("traces_name_values", "/traces/tags/name/values?scope=intrinsic&from=$ns&to=$ne", "traces"),
    Route("traces_dependencies", "/traces/dependencies?from=$ns&to=$ne", "traces"),
    Route("traces_histogram", "/traces/histogram?from=$ns&to=$ne&step=1m&by=service&measure=p95", "traces"),
    Route("traces_heatmap", "/traces/heatmap?from=$ns&to=$ne&step=1m", "traces"),
    Route("traces_facets", "/traces/facets?from=$ns&to=$ne", "traces"),
    Route("traces_difference", "/traces/difference?from=$ns&to=$ne&select={\"minDuration\":\"1ms\"}", "traces"),
    Route("traces_compare", "/traces/compare?left=$t&right=$t", "traces"),
    Route("trace", "/traces/$t", "traces"),
    Route("trace_summary", "/traces/$t/summary", "traces"),
    Route("trace_statistics", "/traces/$t/statistics", "traces"),
    Route("trace_critical_path", "/traces/$t/critical-path", "traces"),
    Route("trace_similar", "/traces/$t/similar", "traces"),
    Route("trace_logs", "/traces/$t/logs", "traces"),
    Route("trace_exemplars", "/traces/$t/exemplars", "traces"),
    Route("trace_export", "/platform-api/traces/$t/otlp", "traces"),
    Route("jaeger_services", "/api/services", "traces"),
    Route("jaeger_operations", "/api/operations?service=front", "traces"),
    Route("jaeger_traces", "/api/traces?service=front&start=$us&end=$ue", "traces"),
    Route("jaeger_trace", "/api/traces/$t", "traces"),
    Route("jaeger_dependencies", "/api/dependencies?endTs=$ms", "traces"),
    Route("jaeger_service_operations", "/api/services/front/operations", "traces"),
    Route("jaeger_calls", "/api/metrics/calls?service=front&lookback=20000000&endTs=$ms", "traces"),
    Route("jaeger_errors", "/api/metrics/errors?service=front&lookback=20000000&endTs=$ms", "traces"),
    Route(
        "jaeger_latencies",
        "/api/metrics/latencies?service=front&quantile=0.95&lookback=20000000&endTs=$ms",
        "traces",
    ),
    Route("jaeger_v3_services", "/api/v3/services", "traces"),
    Route("jaeger_v3_operations", "/api/v3/operations?service=front", "traces"),
    Route(
        "jaeger_v3_traces",
        "/api/v3/traces?query.service_name=front&query.start_time_min=2026-03-01T11:59:00Z&query.start_time_max=2026-03-01T15:20:00Z",
        "traces",
    ),
    Route(
        "jaeger_v3_summaries",
        "/api/v3/trace-summaries?query.service_name=front&query.start_time_min=2026-03-01T11:59:00Z&query.start_time_max=2026-03-01T15:20:00Z",
        "traces",
    ),
    Route("jaeger_v3_trace", "/api/v3/traces/$t", "traces"),
    Route("zipkin_services", "/api/v2/services", "traces"),
    Route("zipkin_spans", "/api/v2/spans?serviceName=front", "traces"),
    Route("zipkin_remote_services", "/api/v2/remoteServices?serviceName=front", "traces"),
    Route("zipkin_traces", "/api/v2/traces?serviceName=front&endTs=$ms", "traces"),
    Route("zipkin_trace", "/api/v2/trace/$t", "traces"),
    Route("zipkin_trace_many", "/api/v2/traceMany?traceIds=$t,0000000000000000000000000000000b", "traces"),
    Route("zipkin_dependencies", "/api/v2/dependencies?endTs=$ms", "traces"),
    Route("zipkin_autocomplete", "/api/v2/autocompleteValues?key=peer.service", "traces"),
    Route("tempo_search", "/tempo/api/search?q={resource.service.name=\"front\"}&start=$s&end=$e", "traces"),
    Route("tempo_tags", "/tempo/api/search/tags?start=$s&end=$e", "traces"),
    Route("tempo_tag_values", "/tempo/api/search/tag/peer.service/values?start=$s&end=$e", "traces"),
    Route("tempo_v2_tags", "/tempo/api/v2/search/tags?start=$s&end=$e", "traces"),
    Route("tempo_v2_tag_values", "/tempo/api/v2/search/tag/.peer.service/values?start=$s&end=$e", "traces"),
    Route("tempo_trace", "/tempo/api/traces/$t", "traces"),
    Route("tempo_v2_trace", "/tempo/api/v2/traces/$t", "traces"),
    Route("tempo_metrics", "/tempo/api/metrics/query?q={}|rate()&start=$s&end=$e", "traces"),
    Route("tempo_metrics_range", "/tempo/api/metrics/query_range?q={}|rate()&start=$s&end=$e&step=60", "traces"),
    Route("sql", "/sql-api/v1/query?query=select%20count(*)%20from%20spans", "sql"),
];

/// Paths under which queries are asked, among others.
const FAMILIES: &[&str] = &[
    "/metrics-api/",
    "/logs-api/",
    "/select/",
    "/traces",
    "/platform-api/traces/",
    "/api/",
    "/jaeger/",
    "/zipkin/",
    "/tempo/",
    "/tempopb.",
    "/sql-api/",
    "/olap-api/",
];

/// Prefixes under which the same handlers answer once more.
const ONCE_MORE: &[&str] = &["/logs-api/select/", "/jaeger/api/", "/zipkin/api/"];

/// Routes of these families that are not in the table, with what they are instead.
const OTHERS: &[(&str, &str)] = &[
    ("/api/v2/logs", "writes"),
    ("/api/v1/validate", "the caller's key"),
    ("/metrics-api/", "a constant"),
    ("/metrics-api/-/healthy", "the process"),
    ("/metrics-api/-/ready", "the process"),
    ("/metrics-api/api/v1/write", "writes"),
    ("/metrics-api/api/v1/import/prometheus", "writes"),
    ("/metrics-api/api/v1/otlp/v1/metrics", "writes"),
    ("/metrics-api/api/v1/format_query", "its text alone"),
    ("/metrics-api/api/v1/parse_query", "its text alone"),
    ("/metrics-api/api/v1/features", "the binary"),
    ("/metrics-api/api/v1/status/buildinfo", "the binary"),
    ("/metrics-api/api/v1/status/config", "settings"),
    ("/metrics-api/api/v1/status/flags", "settings"),
    ("/metrics-api/api/v1/status/runtimeinfo", "the process"),
    ("/metrics-api/api/v1/status/walreplay", "the process"),
    ("/metrics-api/api/v1/targets", "nothing is scraped"),
    ("/metrics-api/api/v1/targets/metadata", "nothing is scraped"),
    ("/metrics-api/api/v1/alertmanagers", "settings"),
    ("/metrics-api/api/v1/alerts", "states of rules"),
    ("/metrics-api/api/v1/rules", "states of rules"),
    ("/metrics-api/api/v1/read", "its query is a body: `what_has_another_form_makes_plans`"),
    ("/metrics-api/federate", "its window ends now: `what_has_another_form_makes_plans`"),
    ("/logs-api/health", "the process"),
    ("/select/buildinfo", "the binary"),
    ("/select/tenant_ids", "there is one tenant"),
    ("/select/logsql/query_time_range", "its text alone"),
    ("/select/logsql/tail", "a query again and again, each run with a plan: `a_tail_makes_plans`"),
    ("/api/archive/{id}", "there is no archive"),
    ("/api/transform", "what the caller sent"),
    ("/api/metrics/minstep", "a constant"),
    ("/api/v2/autocompleteKeys", "a setting"),
    ("/api/v2/alerts", "alerts"),
    ("/api/v2/alerts/groups", "alerts"),
    ("/api/v2/alertprocess", "alerts"),
    ("/api/v2/silences", "silences"),
    ("/api/v2/silence/{id}", "silences"),
    ("/api/v2/receivers", "the policy"),
    ("/api/v2/status", "the policy"),
    ("/tempo/api/echo", "a constant"),
    ("/tempopb.StreamingQuerier/Search", "a call of gRPC for `/tempo/api/search`"),
    ("/tempopb.StreamingQuerier/SearchTags", "one for `/tempo/api/search/tags`"),
    ("/tempopb.StreamingQuerier/SearchTagsV2", "one for `/tempo/api/v2/search/tags`"),
    ("/tempopb.StreamingQuerier/SearchTagValues", "one for the values of a tag"),
    ("/tempopb.StreamingQuerier/SearchTagValuesV2", "the same"),
    ("/tempopb.StreamingQuerier/MetricsQueryRange", "one for `/tempo/api/metrics/query_range`"),
    ("/tempopb.StreamingQuerier/MetricsQueryInstant", "one for `/tempo/api/metrics/query`"),
    ("/tempo/api/status/buildinfo", "the binary"),
    ("/sql-api/v1/tables", "the catalog"),
    ("/olap-api/v1/meta", "models"),
    ("/olap-api/v1/dry-run", "the query as it is understood"),
    ("/olap-api/v1/explain", "the plan itself"),
    ("/olap-api/v1/sql", "the query as SQL"),
    ("/olap-api/v1/cubesql", "a statement, as `/sql-api/v1/query` runs it"),
    ("/olap-api/v1/load", "explained by a route of its own: `what_has_another_form_makes_plans`"),
    ("/olap-api/v1/drill", "explained by the same: `what_has_another_form_makes_plans`"),
    ("/olap-api/v1/meta/values", "a load of one dimension: `what_has_another_form_makes_plans`"),
    ("/olap-api/v1/subscribe", "a load again and again"),
];

/// Says whether a path of the table is of a route: parameters of the route stand for anything.
fn is_of(path: &str, route: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').zip(route.split('/'));
    path.split('/').count() == route.split('/').count()
        && parts.all(|(part, of)| part == of || of.starts_with('{') && !part.is_empty())
}

/// By the description of the API, which a test of its own holds complete.
#[tokio::test(flavor = "multi_thread")]
async fn no_route_of_queries_is_left_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let description = server.get("/platform-api/openapi.json").await.json();
    let all: BTreeSet<&str> = description["paths"].as_object().expect("routes").keys().map(String::as_str).collect();
    let once_more = |path: &str| {
        let rest = ONCE_MORE.iter().find_map(|prefix| path.strip_prefix(*prefix));
        let first = if path.starts_with("/logs-api/") { "/select/" } else { "/api/" };
        rest.is_some_and(|rest| all.contains(format!("{first}{rest}").as_str()))
    };
    // What takes logs stands below a prefix of what is asked.
    let asked = |path: &str| FAMILIES.iter().any(|of| path.starts_with(of)) && !path.starts_with("/logs-api/insert/");
    let in_table = |route: &str| ROUTES.iter().any(|Route(_, path, _)| is_of(path, route));
    let is_other = |route: &str| OTHERS.iter().any(|(other, _)| *other == route);
    let first = all.iter().copied().filter(|path| asked(path) && !once_more(path));
    let missing: Vec<&str> = first.filter(|route| !in_table(route) && !is_other(route)).collect();
    assert!(missing.is_empty(), "neither in the table nor said to be something else: {missing:#?}");
    let gone: Vec<&str> = OTHERS.iter().map(|(other, _)| *other).filter(|other| !all.contains(*other)).collect();
    assert!(gone.is_empty(), "no routes any more: {gone:#?}");
    let twice: Vec<&str> = OTHERS
        .iter()
        .map(|(other, _)| *other)
        .filter(|other| ROUTES.iter().any(|Route(_, path, _)| path.split('?').next() == Some(*other)))
        .collect();
    assert!(twice.is_empty(), "in the table, too: {twice:#?}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn paths_of_routes() {
    let check = |path: &str, route: &str, expected| assert_eq!(is_of(path, route), expected, "{path} {route}");
    check("/traces/$t?x=1", "/traces/{id}", true);
    check("/traces/$t", "/traces", false);
    check("/traces/services", "/traces/services", true);
    check("/traces/$t/summary", "/traces/{id}/logs", false);
}
