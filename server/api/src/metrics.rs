//! Own counters of the API, and the exposition of all own metrics at `/metrics`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quiver_store::metrics::METRICS;

use crate::families::FAMILIES;
use crate::logs_ingest::metrics::LogsMetrics;
use crate::span_metrics::SpanMetrics;
use crate::state::AppState;
use crate::usage::Usage;
use histogram::{Histogram, write_histograms};
use phases::Phases;

mod histogram;
pub mod phases;

/// Counters by route family; routes are a closed set, so the list is fixed.
#[derive(Debug)]
pub struct ApiMetrics {
    families: Vec<Counted>,
    /// Where the time of queries and writes goes.
    pub phases: Phases,
    /// Queries slower than the setting.
    pub slow_queries: AtomicU64,
    /// Counters of log rows on their way in.
    pub logs: LogsMetrics,
    /// Spans on their way in.
    pub spans: SpanMetrics,
    /// Queries on their way into the query log.
    pub usage: Usage,
}

#[derive(Debug)]
struct Counted {
    name: &'static str,
    requests: [AtomicU64; 5],
    took: Histogram,
}

impl Default for ApiMetrics {
    fn default() -> Self {
        let mut families: Vec<Counted> = Vec::new();
        for family in FAMILIES {
            if families.iter().all(|f| f.name != family.name) {
                families.push(Counted { name: family.name, requests: Default::default(), took: Histogram::default() });
            }
        }
        Self {
            families,
            phases: Phases::default(),
            slow_queries: AtomicU64::new(0),
            logs: LogsMetrics::default(),
            spans: SpanMetrics::default(),
            usage: Usage::default(),
        }
    }
}

impl ApiMetrics {
    /// Counts one answered request of a family in [`FAMILIES`].
    pub(crate) fn count(&self, family: usize, status: u16, took: Duration) {
        let name = FAMILIES[family].name;
        if let Some(family) = self.families.iter().find(|f| f.name == name) {
            family.requests[usize::from(status / 100).clamp(1, 5) - 1].fetch_add(1, Relaxed);
            family.took.observe(took);
        }
    }

    /// Writes what is counted of requests.
    fn write_requests(&self, out: &mut String) {
        let mut requests = Vec::new();
        for family in &self.families {
            for (class, count) in family.requests.iter().enumerate() {
                let labels = format!("{{family=\"{}\",class=\"{}xx\"}}", family.name, class + 1);
                requests.push((labels, count.load(Relaxed) as f64));
            }
        }
        write_metric(out, "quiver_http_requests_total", "counter", "Requests answered.", &requests);
        let took = self.families.iter().map(|family| (format!("family=\"{}\"", family.name), &family.took));
        let help = "Time from the head of a request to the head of its answer, over HTTP and gRPC.";
        write_histograms(out, "quiver_http_request_duration_seconds", help, took);
        self.phases.write(out);
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
    let enforced = one(f64::from(u8::from(state.is_enforced())));
    write_metric(&mut out, "rbac_enabled", "gauge", "Whether callers must say who they are.", &enforced);
    (state.process_metrics)(&mut out);
    state.metrics.write_requests(&mut out);
    let used = state.engine.used();
    let loads = [
        ("quiver_query_started_total", "counter", "Queries begun.", &used.started),
        ("quiver_query_failed_total", "counter", "Queries that failed.", &used.failed),
        ("quiver_query_cancelled_total", "counter", "Queries whose caller went away.", &used.cancelled),
        ("quiver_query_running_count", "gauge", "Queries that run.", &used.running),
        ("quiver_query_waiting_count", "gauge", "Queries that wait for a place.", &used.waiting),
        ("quiver_query_slow_total", "counter", "Queries slower than the setting.", &state.metrics.slow_queries),
        ("quiver_query_unlogged_total", "counter", "Queries that have no row.", &state.metrics.usage.lost),
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
    state.alertd.metrics.write(&mut out);
    write_store(&mut out);
    out
}

/// Writes what the store counts, open or not.
pub(crate) fn write_store(out: &mut String) {
    for line in METRICS.list() {
        write_metric(out, line.name, line.kind.type_name(), line.help, &[(String::new(), line.value)]);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_family_and_class() {
        let metrics = ApiMetrics::default();
        let took = Duration::from_millis(1);
        let otlp: Vec<usize> = (0..FAMILIES.len()).filter(|&n| FAMILIES[n].name == "otlp").collect();
        assert!(otlp.len() > 1, "one family of several prefixes");
        for &family in &otlp {
            metrics.count(family, 204, took);
        }
        // What is no status counts as the nearest that is.
        for status in [404, 422, 503, 99, 999] {
            metrics.count(FAMILIES.len() - 1, status, took);
        }
        let mut out = String::new();
        metrics.write_requests(&mut out);
        for (family, class, count) in [
            ("otlp", "2xx", otlp.len()),
            ("otlp", "4xx", 0),
            ("other", "1xx", 1),
            ("other", "2xx", 0),
            ("other", "4xx", 2),
            ("other", "5xx", 2),
        ] {
            let line = format!("quiver_http_requests_total{{family=\"{family}\",class=\"{class}\"}} {count}");
            assert_eq!(out.lines().filter(|l| *l == line).count(), 1, "`{line}` is not in\n{out}");
        }
        let line = "quiver_http_request_duration_seconds_count{family=\"other\"} 5";
        assert!(out.lines().any(|l| l == line), "`{line}` is not in\n{out}");
    }
}
