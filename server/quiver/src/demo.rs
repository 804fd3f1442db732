//! Demo telemetry of a small shop: metrics, logs and traces of the same simulated visits, one hour of history and then
//! live, sent through the same endpoints as any sender uses.

pub mod alerts;
mod banner;
mod configuration;
mod otlp_telemetry;
mod shop;
mod systems;

use std::f64::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, StatusCode, header};
use quiver_api::{AppState, main_router};
use quiver_types::metrics::{Exemplar, MetricMetadata};
use quiver_types::{LabelSet, MetricsBatch, Millis};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use self::banner::LogIn;
use self::otlp_telemetry::{TelemetryBatch, telemetry_of};
use self::shop::{DEPLOYED, PAYMENT_DOWN, SERVICES, SLOW_DB, checkout_version};
use crate::server::Addresses;
use crate::settings::Settings;

/// Interval of the samples.
const STEP_MS: i64 = 5_000;
/// Length of the history that is written at the start.
const HISTORY_MS: i64 = 3_600_000;
const PATHS: [&str; 3] = ["/", "/cart", "/order"];
const BUCKETS: [(&str, f64); 6] =
    [("0.01", 0.2), ("0.05", 0.55), ("0.1", 0.8), ("0.5", 0.96), ("1", 0.99), ("+Inf", 1.0)];
const META: [(&str, &str, &str, &str); 6] = [
    ("http_requests_total", "counter", "Requests served, by path and status.", ""),
    ("http_request_duration_seconds", "histogram", "Time to serve a request.", "seconds"),
    ("process_resident_memory_bytes", "gauge", "Resident memory.", "bytes"),
    ("node_cpu_seconds_total", "counter", "CPU time, by mode.", "seconds"),
    ("build_info", "gauge", "Version of the service.", ""),
    ("up", "gauge", "Whether the target answered.", ""),
];

/// The credentials of the demo, if access control is on.
#[derive(Debug, Clone)]
struct Door {
    router: Router,
    authorization: Option<HeaderValue>,
}

impl Door {
    /// Prepares requests like those of any sender. Also returns what a user needs to sign in.
    async fn open(app: &Arc<AppState>) -> (Self, Option<LogIn>) {
        let mut door = Self { router: main_router(Arc::clone(app)), authorization: None };
        let Some(identities) = app.identities.as_ref().filter(|i| i.enforced) else { return (door, None) };
        match identities.demo_key().await {
            Ok((key, file)) => {
                door.authorization = HeaderValue::try_from(format!("Bearer {}", key.expose())).ok();
                let log_in = LogIn { key: file, first_password: identities.first_password_file() };
                (door, Some(log_in))
            }
            Err(problem) => {
                tracing::error!(cause = problem.cause, "the demo has no key: {problem}");
                (door, None)
            }
        }
    }

    fn request(&self, request: http::request::Builder) -> http::request::Builder {
        match &self.authorization {
            Some(value) => request.header(header::AUTHORIZATION, value),
            None => request,
        }
    }
}

/// Lets the demo's API key use analytics as well, which otherwise accepts only tokens.
pub fn open_doors(settings: &mut Settings) {
    settings.auth.olap_api_keys = true;
}

/// Runs the demo: prints where to look, then sends telemetry until `stop`.
pub async fn run(app: Arc<AppState>, base: String, addresses: Addresses, stop: CancellationToken) {
    let (door, log_in) = Door::open(&app).await;
    banner::print(&base, &addresses, log_in.as_ref());
    if let Err(problem) = configuration::make(&app).await {
        tracing::error!(cause = problem.cause, "the demo cannot be configured: {problem}");
    }
    feed(app, door, stop).await;
}

/// Sends the history, then what happens in each [`STEP_MS`], until `stop`.
async fn feed(app: Arc<AppState>, door: Door, stop: CancellationToken) {
    let now = app.clock.now_ms();
    let mut next = (now - HISTORY_MS).div_euclid(STEP_MS) * STEP_MS;
    // Samples that are sent again are the same samples, but log rows would be stored twice.
    let told_until = newest_trace(&door).await.unwrap_or(0);
    loop {
        while next <= app.clock.now_ms() {
            // The history is sent a minute at a time, live samples one by one.
            let times: Vec<Millis> = (0..12).map(|i| next + i * STEP_MS).filter(|t| *t <= app.clock.now_ms()).collect();
            let seconds = (next / 1_000).max(told_until + 1)..(next / 1_000 + times.len() as i64 * STEP_MS / 1_000);
            next += times.len() as i64 * STEP_MS;
            // A visit is reported when it is over, so that no time lies in the future.
            let told = telemetry_of(seconds.start - STEP_MS / 1_000..seconds.end - STEP_MS / 1_000);
            let samples = batch(&times, &told);
            post(&door, "/v1/traces", told.spans).await;
            post(&door, "/insert/jsonline?_stream_fields=service.name,k8s.pod.name", told.logs).await;
            if let Err(error) = app.engines.store.write_metrics(samples).await {
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

/// Sends a request as a client does.
async fn post(door: &Door, path: &str, body: String) {
    if body.is_empty() {
        return;
    }
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let request = door.request(request).body(Body::from(body));
    let Ok(request) = request else { return };
    match door.router.clone().oneshot(request).await {
        Ok(response) if response.status() == StatusCode::OK => {}
        Ok(response) => tracing::warn!(status = %response.status(), path, "demo telemetry was refused"),
        Err(never) => match never {},
    }
}

/// The second in which the newest trace of an earlier run begins.
async fn newest_trace(door: &Door) -> Option<i64> {
    let path = "/traces?from=now-1h&limit=1&service=web&root=true";
    let request = door.request(Request::get(path)).body(Body::empty()).ok()?;
    let response = door.router.clone().oneshot(request).await.ok()?;
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.ok()?;
    let answer: Value = serde_json::from_slice(&body).ok()?;
    let start: i64 = answer["data"][0]["start"].as_str()?.parse().ok()?;
    Some(start / 1_000_000_000 + STEP_MS / 1_000)
}

/// The instance of a service whose samples are made.
struct Instance<'b> {
    batch: &'b mut MetricsBatch,
    job: &'static str,
    name: String,
    times: &'b [Millis],
}

impl Instance<'_> {
    fn add(&mut self, metric: &str, more: &[(&str, &str)], value: impl Fn(f64) -> f64) -> u32 {
        let base = [("job", self.job), ("instance", self.name.as_str()), ("__name__", metric)];
        let series =
            self.batch.push_series(LabelSet::from_pairs(base.into_iter().chain(more.iter().copied())).canonical());
        for &t in self.times {
            self.batch.push_sample(series, t, value(t as f64 / 1000.0), 0);
        }
        series
    }
}

/// Additional failing requests per second, during the incidents of the services that have some.
fn failing(service: &str, t: f64) -> f64 {
    match service {
        "payment" => 6.0 * PAYMENT_DOWN.seconds(t),
        "checkout" | "gateway" => 6.0 * PAYMENT_DOWN.seconds(t) + 3.5 * DEPLOYED.seconds(t),
        _ => 0.0,
    }
}

/// Additional slow requests per second.
fn slow(service: &str, t: f64) -> f64 {
    if matches!(service, "catalog" | "storefront" | "gateway") { 8.0 * SLOW_DB.seconds(t) } else { 0.0 }
}

/// All samples at some times. Values depend only on the time, so that a restart continues where it stopped.
fn batch(times: &[Millis], told: &TelemetryBatch) -> MetricsBatch {
    let mut b = MetricsBatch::default();
    let metadata = META.iter().map(|(metric, kind, help, unit)| MetricMetadata {
        metric: (*metric).to_owned(),
        metric_type: (*kind).to_owned(),
        help: (*help).to_owned(),
        unit: (*unit).to_owned(),
    });
    b.metadata.extend(metadata);
    for (s, service) in SERVICES.iter().copied().enumerate().filter(|(_, s)| *s != "web") {
        for n in 0..3 {
            let name = format!("{service}-{n}");
            let mut of = Instance { batch: &mut b, job: service, name: name.clone(), times };
            let phase = (s * 3 + n) as f64;
            of.add("up", &[], |_| 1.0);
            of.add("process_resident_memory_bytes", &[], |t| (2e8 + 4e7 * (t / 600.0 + phase).sin()).round());
            let version = match service {
                "checkout" => checkout_version(times.first().copied().unwrap_or(0) / 1_000),
                _ => "2.3.1".to_owned(),
            };
            of.add("build_info", &[("version", &version)], |_| 1.0);
            for (mode, share) in [("user", 0.3), ("system", 0.1), ("idle", 0.6)] {
                of.add("node_cpu_seconds_total", &[("mode", mode)], |t| {
                    (growth(t, phase) * share * 100.0).round() / 100.0
                });
            }
            requests(&mut of, phase, told);
        }
    }
    systems::add(&mut b, times);
    b
}

/// Counters and histograms of the requests that an instance serves, with exemplars of the visits.
fn requests(of: &mut Instance<'_>, phase: f64, told: &TelemetryBatch) {
    let service = of.job;
    for (p, path) in PATHS.iter().copied().enumerate() {
        let rate = 20.0 / (p + 1) as f64;
        let part = 1.0 / (p + 1) as f64;
        of.add("http_requests_total", &[("path", path), ("status", "200")], |t| (growth(t, phase) * rate).floor());
        of.add("http_requests_total", &[("path", path), ("status", "500")], |t| {
            (growth(t, phase) * rate * 0.002 + failing(service, t) * part).floor()
        });
        let mut buckets = Vec::new();
        for (le, share) in BUCKETS {
            let late = if matches!(le, "1" | "+Inf") { part } else { 0.0 };
            let series = of.add("http_request_duration_seconds_bucket", &[("path", path), ("le", le)], |t| {
                (growth(t, phase) * rate * share + slow(service, t) * late).floor()
            });
            buckets.push((le.parse::<f64>().unwrap_or(f64::INFINITY), series));
        }
        of.add("http_request_duration_seconds_count", &[("path", path)], |t| {
            (growth(t, phase) * rate + slow(service, t) * part).floor()
        });
        of.add("http_request_duration_seconds_sum", &[("path", path)], |t| {
            ((growth(t, phase) * rate * 0.08 + slow(service, t) * part * 0.7) * 1e3).floor() / 1e3
        });
        if p == 0 {
            exemplars(of, &buckets, told);
        }
    }
}

fn exemplars(of: &mut Instance<'_>, buckets: &[(f64, u32)], told: &TelemetryBatch) {
    let served = told.served.iter().filter(|s| s.0 == of.job && s.1 == of.name);
    for (_, _, ts, took, trace) in served {
        let Some((_, series)) = buckets.iter().find(|(le, _)| took <= le) else { continue };
        let labels = LabelSet::from_pairs([("trace_id", trace.as_str())]).canonical().to_vec();
        of.batch.exemplars.push(Exemplar { series: *series, ts: *ts, value: *took, labels });
    }
}

/// A counter that grows by about one per second, faster and slower in turns of 20 minutes; it restarts each day.
fn growth(t: f64, phase: f64) -> f64 {
    let t = t.rem_euclid(86_400.0);
    t + 1200.0 / TAU * 0.5 * (1.0 - (t / 1200.0 * TAU + phase).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_fall_within_a_day() {
        let counter = |t: f64| growth(t, 3.0) + failing("checkout", t) + slow("gateway", t);
        let values: Vec<f64> = (0..17_000).map(|i| counter(f64::from(i) * 5.0)).collect();
        assert!(values.windows(2).all(|w| w[0] <= w[1]));
        let told = telemetry_of(1_700_000_000..1_700_000_010);
        let b = batch(&[1_700_000_000_000, 1_700_000_005_000], &told);
        assert_eq!(b.ts.len(), b.series.len() * 2);
        assert!(b.series.len() > 300);
        assert!(b.exemplars.iter().all(|e| b.series.len() > e.series as usize) && !b.exemplars.is_empty());
    }

    /// Values depend only on the time: a batch equals the same samples one by one.
    #[test]
    fn samples_do_not_depend_on_their_neighbours() {
        let told = TelemetryBatch::default();
        let (first, second) = (1_700_000_000_000, 1_700_000_005_000);
        let (both, one, other) = (batch(&[first, second], &told), batch(&[first], &told), batch(&[second], &told));
        let each = |from: usize| both.values.iter().skip(from).step_by(2).copied().collect::<Vec<_>>();
        assert_eq!((each(0), each(1)), (one.values.clone(), other.values.clone()));
        assert_eq!((&both.label_bytes, &both.label_bytes), (&one.label_bytes, &other.label_bytes));
        assert!(one.values.iter().zip(&other.values).any(|(a, b)| a != b));
        assert!(both.exemplars.is_empty() && both.metadata.len() == META.len());
    }

    /// Incidents show where the shop has them, and nowhere else.
    #[test]
    fn whose_requests_fail() {
        let (before, after) = (900.0, 1_200.0);
        for (service, fails, is_slow) in [
            ("payment", true, false),
            ("checkout", true, false),
            ("gateway", true, true),
            ("catalog", false, true),
            ("storefront", false, true),
            ("search", false, false),
        ] {
            let grows = |of: fn(&str, f64) -> f64, from: f64, to: f64| of(service, to) > of(service, from);
            assert_eq!(grows(failing, before, after), fails, "{service}");
            assert_eq!(grows(slow, 200.0, 500.0), is_slow, "{service}");
        }
    }
}
