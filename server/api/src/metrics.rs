//! Own counters of the API; `exposition` writes them and all other own metrics for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quiver_store::metrics::METRICS;

use crate::logs_ingest::metrics::LogsMetrics;
use crate::request_families::FAMILIES;
use crate::span_metrics::SpanMetrics;
use crate::usage::Usage;
use histogram::{Histogram, write_histograms};
use phases::Phases;
use rejections::Rejections;

pub use text::write_metric;

pub mod exposition;
mod histogram;
pub mod phases;
pub mod rejections;
pub(crate) mod text;

/// Counters by route family; routes are a closed set, so the list is fixed.
#[derive(Debug)]
pub struct ApiMetrics {
    families: Vec<FamilyCounters>,
    /// Where the time of queries and writes goes.
    pub phases: Phases,
    /// Queries slower than the setting.
    pub slow_queries: AtomicU64,
    /// Counters of log rows on their way in.
    pub logs: LogsMetrics,
    /// What was left out of metrics on their way in.
    pub rejections: Rejections,
    /// Spans on their way in.
    pub spans: SpanMetrics,
    /// Queries on their way into the query log.
    pub usage: Usage,
}

#[derive(Debug)]
struct FamilyCounters {
    name: &'static str,
    requests: [AtomicU64; 5],
    took: Histogram,
}

impl Default for ApiMetrics {
    fn default() -> Self {
        let mut families: Vec<FamilyCounters> = Vec::new();
        for family in FAMILIES {
            if families.iter().all(|f| f.name != family.name) {
                families.push(FamilyCounters {
                    name: family.name,
                    requests: Default::default(),
                    took: Histogram::default(),
                });
            }
        }
        Self {
            families,
            phases: Phases::default(),
            slow_queries: AtomicU64::new(0),
            logs: LogsMetrics::default(),
            rejections: Rejections::default(),
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

/// Writes what the store counts, open or not.
pub(crate) fn write_store(out: &mut String) {
    for line in METRICS.list() {
        write_metric(out, line.name, line.kind.type_name(), line.help, &[(String::new(), line.value)]);
    }
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
