//! Own counters of the API, and the exposition of all own metrics at `/metrics`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::logs_ingest::metrics::LogsMetrics;
use crate::span_metrics::SpanMetrics;
use crate::state::AppState;

/// Counters by route family; routes are a closed set, so the list is fixed.
#[derive(Debug)]
pub struct ApiMetrics {
    families: Vec<Family>,
    /// Queries slower than the setting.
    pub slow_queries: AtomicU64,
    /// Log rows.
    pub logs: LogsMetrics,
    /// Spans on their way in.
    pub spans: SpanMetrics,
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    requests: [AtomicU64; 5],
    micros: AtomicU64,
}

/// The families that requests are counted under; the first whose prefix fits, the last for the rest.
const FAMILIES: &[(&str, &str)] = &[
    ("write", "/metrics-api/api/v1/write"),
    ("otlp", "/metrics-api/api/v1/otlp"),
    ("otlp", "/v1/"),
    ("otlp", "/insert/opentelemetry/"),
    ("logs_write", "/insert/"),
    ("logs_write", "/loki/"),
    ("metrics", "/metrics-api/"),
    ("traces", "/traces"),
    ("traces", "/platform-api/traces"),
    ("traces", "/api/"),
    ("traces", "/jaeger/"),
    ("traces", "/zipkin/"),
    ("health", "/health/"),
    ("admin", "/admin/"),
    ("other", ""),
];

impl Default for ApiMetrics {
    fn default() -> Self {
        let mut families: Vec<Family> = Vec::new();
        for (name, _) in FAMILIES {
            if families.iter().all(|f| f.name != *name) {
                families.push(Family { name, requests: Default::default(), micros: AtomicU64::new(0) });
            }
        }
        Self { families, slow_queries: AtomicU64::new(0), logs: LogsMetrics::default(), spans: SpanMetrics::default() }
    }
}

impl ApiMetrics {
    /// Counts one answered request.
    pub fn count(&self, path: &str, status: u16, took: Duration) {
        let name = FAMILIES.iter().find(|(_, prefix)| path.starts_with(prefix)).map_or("other", |(name, _)| name);
        if let Some(family) = self.families.iter().find(|f| f.name == name) {
            family.requests[usize::from(status / 100).clamp(1, 5) - 1].fetch_add(1, Relaxed);
            family.micros.fetch_add(took.as_micros() as u64, Relaxed);
        }
    }
}

/// Writes one metric with its `# HELP` and `# TYPE` lines.
pub fn write_metric(out: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// Gives all own metrics as exposition text 0.0.4.
pub fn exposition(state: &AppState) -> String {
    let mut out = String::with_capacity(16 * 1024);
    let one = |v: f64| vec![(String::new(), v)];
    let version = vec![(format!("{{version=\"{}\"}}", state.settings.version), 1.0)];
    write_metric(&mut out, "quiver_build_info", "gauge", "Version of the product.", &version);
    (state.process_metrics)(&mut out);
    let (mut requests, mut seconds) = (Vec::new(), Vec::new());
    for family in &state.metrics.families {
        for (class, count) in family.requests.iter().enumerate() {
            requests.push((
                format!("{{family=\"{}\",class=\"{}xx\"}}", family.name, class + 1),
                count.load(Relaxed) as f64,
            ));
        }
        seconds.push((format!("{{family=\"{}\"}}", family.name), family.micros.load(Relaxed) as f64 / 1e6));
    }
    write_metric(&mut out, "quiver_http_requests_total", "counter", "Requests answered.", &requests);
    write_metric(&mut out, "quiver_http_request_seconds_total", "counter", "Time spent in requests.", &seconds);
    let used = state.engine.used();
    let loads = [
        ("quiver_query_started_total", "counter", "Queries begun.", &used.started),
        ("quiver_query_failed_total", "counter", "Queries that failed.", &used.failed),
        ("quiver_query_cancelled_total", "counter", "Queries whose caller went away.", &used.cancelled),
        ("quiver_query_running_count", "gauge", "Queries that run.", &used.running),
        ("quiver_query_waiting_count", "gauge", "Queries that wait for a place.", &used.waiting),
        ("quiver_query_slow_total", "counter", "Queries slower than the setting.", &state.metrics.slow_queries),
    ];
    for (name, kind, help, counter) in loads {
        write_metric(&mut out, name, kind, help, &one(counter.load(Relaxed) as f64));
    }
    let seconds = used.micros.load(Relaxed) as f64 / 1e6;
    write_metric(&mut out, "quiver_query_seconds_total", "counter", "Time spent in queries.", &one(seconds));
    let reserved = state.engine.memory_reserved() as f64;
    write_metric(&mut out, "quiver_query_memory_bytes", "gauge", "Memory pool in use.", &one(reserved));
    state.metrics.logs.write(&mut out);
    caches(state, &mut out);
    state.metrics.spans.write(&mut out);
    for line in state.store.metrics() {
        write_metric(&mut out, line.name, line.kind.type_name(), line.help, &one(line.value));
    }
    out
}

/// Writes what the caches hold and did.
fn caches(state: &AppState, out: &mut String) {
    let stats = state.store.cache_stats();
    let each = |f: fn(&quiver_store::cache::CacheStats) -> u64| -> Vec<(String, f64)> {
        stats.iter().map(|(name, s)| (format!("{{cache=\"{name}\"}}"), f(s) as f64)).collect()
    };
    let results = state.promql.results().stats();
    let with_results = |mut list: Vec<(String, f64)>, n: u64| {
        list.push(("{cache=\"results\"}".to_owned(), n as f64));
        list
    };
    let bytes = with_results(each(|s| s.bytes), results.bytes);
    write_metric(out, "quiver_cache_bytes", "gauge", "Bytes that a cache holds.", &bytes);
    let entries = with_results(each(|s| s.entries), results.entries);
    write_metric(out, "quiver_cache_entries_count", "gauge", "Entries that a cache holds.", &entries);
    write_metric(out, "quiver_cache_hits_total", "counter", "Look-ups that a cache answered.", &each(|s| s.hits));
    write_metric(out, "quiver_cache_misses_total", "counter", "Look-ups that it did not.", &each(|s| s.misses));
    let steps = [
        ("{from=\"cache\"}".to_owned(), results.steps_kept as f64),
        ("{from=\"evaluation\"}".to_owned(), results.steps_evaluated as f64),
    ];
    let help = "Steps of range queries whose results may be kept, by where they came from.";
    write_metric(out, "quiver_result_steps_total", "counter", help, &steps);
}
