//! Counters of what was left out of metrics when requests were read, by format and reason: remote write 1.0 has no other
//! way to tell of a series that was skipped.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_ingest::formats::FORMATS;
use quiver_ingest::{Reason, RejectedItems};

use super::text::write_metric;

/// The name of imported text, which is read in pieces and is no format of the registry.
pub const IMPORTED_TEXT: &str = "exposition";

/// Counters of all formats.
#[derive(Debug)]
pub struct Rejections(Vec<(&'static str, ByReason)>);

type ByReason = [AtomicU64; Reason::ALL.len()];

impl Default for Rejections {
    fn default() -> Self {
        let names = FORMATS.iter().map(|format| format.name).chain([IMPORTED_TEXT]);
        Self(names.map(|name| (name, ByReason::default())).collect())
    }
}

impl Rejections {
    /// Counts what was left out of a request that was answered.
    pub(crate) fn count(&self, format: &str, rejected: &[RejectedItems]) {
        let Some((_, counters)) = self.0.iter().find(|(name, _)| *name == format) else { return };
        for items in rejected {
            counters[items.reason as usize].fetch_add(items.count, Relaxed);
        }
    }

    /// Writes all counters, those that are zero as well.
    pub(crate) fn write(&self, out: &mut String) {
        let mut lines = Vec::new();
        for (format, counters) in &self.0 {
            for (reason, count) in Reason::ALL.iter().zip(counters) {
                let labels = format!("{{format=\"{format}\",reason=\"{}\"}}", reason.as_str());
                lines.push((labels, count.load(Relaxed) as f64));
            }
        }
        let help =
            "Series, points, histograms, exemplars, lines and metadata that were left out of requests with metrics.";
        write_metric(out, "quiver_metrics_rejected_total", "counter", help, &lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_count_for_their_format_and_reason() {
        let rejections = Rejections::default();
        let items = |reason, count| RejectedItems { reason, count, example: String::new() };
        for format in FORMATS.iter().map(|format| format.name).chain([IMPORTED_TEXT]) {
            let rejected = [items(Reason::NoMetricName, 2), items(Reason::Service, format.len() as u64)];
            rejections.count(format, &rejected);
            rejections.count(format, &rejected[..1]);
            rejections.count(format, &[]);
        }
        let mut out = String::new();
        rejections.write(&mut out);
        for format in ["remote_write", "remote_write2", "otlp_metrics", "otlp_metrics_json", "exposition"] {
            for (reason, count) in [("no_metric_name", 4), ("service", format.len()), ("bad_symbols", 0)] {
                let name = "quiver_metrics_rejected_total";
                let line = format!("{name}{{format=\"{format}\",reason=\"{reason}\"}} {count}");
                assert_eq!(out.lines().filter(|l| *l == line).count(), 1, "`{line}` is not in\n{out}");
            }
        }
    }
}
