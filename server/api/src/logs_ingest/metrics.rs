//! Counters of log rows, per endpoint and reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_ingest::logs::{DropReason, Report};

use crate::metrics::text::write_metric;

/// An endpoint that ingests logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// JSON lines.
    JsonLines,
    /// Bulk requests of the search engine API.
    Bulk,
    /// Push of a log aggregator.
    Push,
    /// The SaaS intake.
    Saas,
    /// OTLP over HTTP.
    Otlp,
    /// OTLP over gRPC.
    OtlpGrpc,
    /// Entries of systemd's journal.
    Journal,
    /// Events of Splunk's collector.
    Events,
}

const NAMES: [&str; 8] =
    ["jsonline", "searchengine", "aggregator", "saas", "opentelemetry", "opentelemetry_grpc", "journald", "splunk"];

#[derive(Debug, Default)]
struct Counters {
    rows: AtomicU64,
    bytes: AtomicU64,
    cut_names: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

/// Counters of all endpoints.
#[derive(Debug, Default)]
pub struct LogsMetrics([Counters; NAMES.len()]);

impl LogsMetrics {
    /// Counts a request; `bytes` is the size of its body on the wire.
    pub fn count(&self, endpoint: Endpoint, bytes: u64, report: &Report) {
        let counters = &self.0[endpoint as usize];
        counters.rows.fetch_add(report.rows, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.cut_names.fetch_add(report.cut_names, Relaxed);
        for (why, count) in report.dropped() {
            counters.dropped[why as usize].fetch_add(count, Relaxed);
        }
    }

    /// Writes all counters.
    pub fn write(&self, out: &mut String) {
        let each = |get: &dyn Fn(&Counters) -> &AtomicU64| -> Vec<(String, f64)> {
            let lines = NAMES.iter().zip(&self.0);
            lines.map(|(name, c)| (format!("{{endpoint=\"{name}\"}}"), get(c).load(Relaxed) as f64)).collect()
        };
        let mut dropped = Vec::new();
        for (name, counters) in NAMES.iter().zip(&self.0) {
            for why in DropReason::ALL {
                let labels = format!("{{endpoint=\"{name}\",reason=\"{}\"}}", why.word());
                dropped.push((labels, counters.dropped[why as usize].load(Relaxed) as f64));
            }
        }
        let rows = each(&|c| &c.rows);
        write_metric(out, "quiver_logs_rows_total", "counter", "Log rows taken in.", &rows);
        write_metric(out, "quiver_logs_rows_dropped_total", "counter", "Log rows not taken in.", &dropped);
        let bytes = each(&|c| &c.bytes);
        write_metric(out, "quiver_logs_bytes_total", "counter", "Bytes of bodies with logs, as on the wire.", &bytes);
        let cut = each(&|c| &c.cut_names);
        let help = "Names of log fields that were cut to 128 bytes.";
        write_metric(out, "quiver_logs_names_cut_total", "counter", help, &cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_for_their_endpoint_and_reason() {
        let (metrics, mut report) = (LogsMetrics::default(), Report::default());
        report.drop_rows(DropReason::TooOld, 2);
        report.rows = 3;
        report.cut_names = 1;
        let endpoints = [
            (Endpoint::JsonLines, "jsonline"),
            (Endpoint::Bulk, "searchengine"),
            (Endpoint::Push, "aggregator"),
            (Endpoint::Saas, "saas"),
            (Endpoint::Otlp, "opentelemetry"),
            (Endpoint::OtlpGrpc, "opentelemetry_grpc"),
            (Endpoint::Journal, "journald"),
            (Endpoint::Events, "splunk"),
        ];
        for (n, (endpoint, _)) in endpoints.into_iter().enumerate() {
            metrics.count(endpoint, 10 + n as u64, &report);
        }
        // A body without rows counts as a request, too.
        metrics.count(Endpoint::Push, 5, &Report::default());
        let mut out = String::new();
        metrics.write(&mut out);
        let lines: Vec<&str> = out.lines().collect();
        for (n, (endpoint, name)) in endpoints.into_iter().enumerate() {
            let bytes = 10 + n + if endpoint == Endpoint::Push { 5 } else { 0 };
            for line in [
                format!("quiver_logs_rows_total{{endpoint=\"{name}\"}} 3"),
                format!("quiver_logs_bytes_total{{endpoint=\"{name}\"}} {bytes}"),
                format!("quiver_logs_names_cut_total{{endpoint=\"{name}\"}} 1"),
                format!("quiver_logs_rows_dropped_total{{endpoint=\"{name}\",reason=\"too_old\"}} 2"),
                format!("quiver_logs_rows_dropped_total{{endpoint=\"{name}\",reason=\"too_new\"}} 0"),
            ] {
                assert!(lines.contains(&line.as_str()), "`{line}` is not in\n{out}");
            }
        }
    }
}
