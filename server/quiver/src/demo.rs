//! Demo telemetry: a small shop of services, an hour of history and then live, through the same store as any sender's.

use std::f64::consts::TAU;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use quiver_api::AppState;
use quiver_types::metrics::MetricMetadata;
use quiver_types::{LabelSet, MetricsBatch, Millis};
use tokio_util::sync::CancellationToken;

use crate::server::Addresses;

/// Distance of the samples.
const STEP_MS: i64 = 5_000;
/// History at start.
const HISTORY_MS: i64 = 3_600_000;
const SERVICES: [&str; 4] = ["frontend", "checkout", "catalog", "payments"];
const PATHS: [&str; 3] = ["/", "/cart", "/order"];
const BUCKETS: [(&str, f64); 6] =
    [("0.01", 0.2), ("0.05", 0.55), ("0.1", 0.8), ("0.5", 0.96), ("1", 0.99), ("+Inf", 1.0)];
const META: [(&str, &str, &str, &str); 5] = [
    ("http_requests_total", "counter", "Requests served, by path and status.", ""),
    ("http_request_duration_seconds", "histogram", "Time to serve a request.", "seconds"),
    ("process_resident_memory_bytes", "gauge", "Resident memory.", "bytes"),
    ("node_cpu_seconds_total", "counter", "CPU time, by mode.", "seconds"),
    ("up", "gauge", "Whether the target answered.", ""),
];

/// Says where to look.
pub fn banner(addresses: &Addresses) -> String {
    let base = format!("http://{}", addresses.http);
    let mut out = String::new();
    let _ = write!(
        out,
        "\n  Quiver runs with demo telemetry flowing in.\n\n\
         \x20 Try:      curl -s '{base}/metrics-api/api/v1/query' --data-urlencode 'query=sum by (job) (rate(http_requests_total[5m]))'\n\
         \x20 Grafana:  add a Prometheus data source with the URL {base}/metrics-api\n\
         \x20 Write:    remote_write to {base}/metrics-api/api/v1/write"
    );
    for (name, address) in [("OTLP/HTTP", addresses.otlp_http), ("OTLP/gRPC", addresses.otlp_grpc)] {
        if let Some(address) = address {
            let _ = write!(out, ", {name} to http://{address}");
        }
    }
    let _ = write!(
        out,
        "\n  Look:     {base}/metrics (own metrics), {base}/health/ready\n\
         \x20 Explain:  add explain=analyze to any query\n\n  Ctrl-C stops it; the data stays in the data directory.\n"
    );
    out
}

/// Writes history, then a sample of every series each [`STEP_MS`], until `stop`.
pub async fn feed(app: Arc<AppState>, stop: CancellationToken) {
    let now = app.clock.now_ms();
    let mut next = (now - HISTORY_MS).div_euclid(STEP_MS) * STEP_MS;
    loop {
        while next <= app.clock.now_ms() {
            // History goes in by the minute, live samples one by one.
            let times: Vec<Millis> = (0..12).map(|i| next + i * STEP_MS).filter(|t| *t <= app.clock.now_ms()).collect();
            next += times.len() as i64 * STEP_MS;
            if let Err(error) = app.store.write_metrics(batch(&times)).await {
                tracing::warn!(%error, "demo telemetry was refused");
            }
            if stop.is_cancelled() {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// All samples of some times. Values depend on the time alone, so that a restart goes on where it stopped.
fn batch(times: &[Millis]) -> MetricsBatch {
    let mut b = MetricsBatch::default();
    let metadata = META.iter().map(|(metric, kind, help, unit)| MetricMetadata {
        metric: (*metric).to_owned(),
        metric_type: (*kind).to_owned(),
        help: (*help).to_owned(),
        unit: (*unit).to_owned(),
    });
    b.metadata.extend(metadata);
    for (s, service) in SERVICES.iter().enumerate() {
        for instance in 0..3 {
            let name = format!("{service}-{instance}");
            let base = [("job", *service), ("instance", name.as_str())];
            let mut add = |metric: &str, more: &[(&str, &str)], value: &dyn Fn(f64) -> f64| {
                let pairs = base.iter().chain(more).copied().chain([("__name__", metric)]);
                let series = b.push_series(LabelSet::from_pairs(pairs).canonical());
                for &t in times {
                    b.push_sample(series, t, value(t as f64 / 1000.0), 0);
                }
            };
            let phase = (s * 3 + instance) as f64;
            add("up", &[], &|_| 1.0);
            add("process_resident_memory_bytes", &[], &|t| (2e8 + 4e7 * (t / 600.0 + phase).sin()).round());
            for (mode, share) in [("user", 0.3), ("system", 0.1), ("idle", 0.6)] {
                add("node_cpu_seconds_total", &[("mode", mode)], &|t| {
                    (growth(t, phase) * share * 100.0).round() / 100.0
                });
            }
            for (p, path) in PATHS.iter().enumerate() {
                for (status, share) in [("200", 1.0), ("500", 0.01 + 0.005 * phase)] {
                    let rate = share * 20.0 / (p + 1) as f64;
                    add("http_requests_total", &[("path", path), ("status", status)], &|t| {
                        (growth(t, phase) * rate).floor()
                    });
                }
                let rate = 20.0 / (p + 1) as f64;
                for (le, share) in BUCKETS {
                    let labels = [("path", *path), ("le", le)];
                    add("http_request_duration_seconds_bucket", &labels, &|t| {
                        (growth(t, phase) * rate * share).floor()
                    });
                }
                add("http_request_duration_seconds_count", &[("path", path)], &|t| (growth(t, phase) * rate).floor());
                add("http_request_duration_seconds_sum", &[("path", path)], &|t| {
                    (growth(t, phase) * rate * 0.08 * 1e3).floor() / 1e3
                });
            }
        }
    }
    b
}

/// A counter that grows about one a second, faster and slower by turns of 20 minutes; begins anew each day.
fn growth(t: f64, phase: f64) -> f64 {
    let t = t.rem_euclid(86_400.0);
    t + 1200.0 / TAU * 0.5 * (1.0 - (t / 1200.0 * TAU + phase).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_fall_within_a_day() {
        let values: Vec<f64> = (0..2_000).map(|i| growth(f64::from(i) * 5.0, 3.0)).collect();
        assert!(values.windows(2).all(|w| w[0] <= w[1]));
        let b = batch(&[1_000, 6_000]);
        assert_eq!(b.ts.len(), b.series.len() * 2);
        assert!(b.series.len() > 300);
    }
}
