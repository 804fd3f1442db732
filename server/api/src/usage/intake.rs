//! Measures incoming telemetry: recorded by each request, aggregated by minute, signal, protocol and service.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use quiver_types::Millis;

/// Most sums waiting to be written; further ones count for no service. They take at most 30 MiB, not counting their
/// times.
const SUMS_MAX: usize = 65_536;
/// Most services per request; further ones count for no service. Each name is in the body, which is longer.
const SERVICES_MAX: usize = 16_384;
/// Longest service name that is recorded.
const SERVICE_BYTES_MAX: usize = 256;
/// Durations of requests kept per sum, and as many delays.
const TIMES_MAX: usize = 250;
/// Durations and delays in all sums: 8 MiB. Requests beyond are counted without them.
const ALL_TIMES_MAX: usize = 1 << 20;
const MINUTE_MS: i64 = 60_000;

/// Accepted records of a service.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AcceptedRecords {
    /// Number of samples, rows or spans.
    pub(crate) records: u64,
    /// Number of records whose times are known, and the sum of these times.
    timed: u64,
    times_ms: i128,
    /// Their size; `None`: unknown, and the size of the request is used.
    bytes: Option<u64>,
}

impl AcceptedRecords {
    /// Records of unknown times.
    pub(crate) fn untimed(records: u64) -> Self {
        Self { records, ..Self::default() }
    }

    /// A record with its time and size.
    pub(crate) fn record(time_ms: Millis, bytes: u64) -> Self {
        Self { records: 1, timed: 1, times_ms: i128::from(time_ms), bytes: Some(bytes) }
    }

    /// Adds a record with its time.
    pub(crate) fn add(&mut self, time_ms: Millis) {
        self.records += 1;
        self.timed += 1;
        self.times_ms += i128::from(time_ms);
    }

    /// Adds records of the same service.
    pub(crate) fn join(&mut self, other: Self) {
        self.records += other.records;
        self.timed += other.timed;
        self.times_ms += other.times_ms;
        if let Some(bytes) = other.bytes {
            *self.bytes.get_or_insert(0) += bytes;
        }
    }

    /// The average age of the records in milliseconds.
    fn delay_ms(&self, now_ms: Millis) -> Option<u64> {
        let mean = self.times_ms.checked_div_euclid(i128::from(self.timed))?;
        Some(u64::try_from(i128::from(now_ms) - mean).unwrap_or(0))
    }
}

/// The telemetry of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestIntake {
    bytes: AtomicU64,
    /// Accepted records by signal and service.
    records: Mutex<BTreeMap<(&'static str, String), AcceptedRecords>>,
    /// Rejected records by signal and reason.
    rejected: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl RequestIntake {
    /// Adds bytes as they arrive.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Adds records; an empty service means none or unknown.
    pub(crate) fn add_records(&self, signal: &'static str, service: &str, brought: AcceptedRecords) {
        let service = if service.len() > SERVICE_BYTES_MAX { "" } else { service };
        let mut records = self.records.lock();
        let key = (signal, service.to_owned());
        let key =
            if records.len() < SERVICES_MAX || records.contains_key(&key) { key } else { (signal, String::new()) };
        records.entry(key).or_default().join(brought);
    }

    /// Adds rejected records.
    pub(crate) fn add_rejected(&self, signal: &'static str, reason: &'static str, count: u64) {
        *self.rejected.lock().entry((signal, reason)).or_default() += count;
    }
}

/// The key of a sum.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The start of the minute.
    pub(super) minute: Millis,
    pub(super) signal: &'static str,
    pub(super) protocol: &'static str,
    pub(super) service: String,
    /// Why records were rejected; empty: they were accepted.
    pub(super) reason: &'static str,
}

/// The sums under a [`Key`].
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) rejected: u64,
    pub(super) requests: u64,
    micros: Vec<u64>,
    delays_ms: Vec<u64>,
}

/// The 95th percentile; NaN if there are no values.
fn p95(values: &[u64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    match values.len() {
        0 => f64::NAN,
        len => values[(len * 95).div_ceil(100) - 1] as f64,
    }
}

impl Sums {
    /// The 95th percentile of request durations in milliseconds; NaN if there were none.
    pub(super) fn latency_ms(&self) -> f64 {
        p95(&self.micros) / 1e3
    }

    /// The 95th percentile of the delay between the records' times and the end of their requests, in milliseconds;
    /// NaN if unknown.
    pub(super) fn lag_ms(&self) -> f64 {
        p95(&self.delays_ms)
    }
}

/// Sums waiting to be written.
#[derive(Debug, Default)]
struct PendingSums {
    sums: BTreeMap<Key, Sums>,
    /// Number of durations and delays in them.
    times: usize,
}

/// All sums waiting to be written.
#[derive(Debug, Default)]
pub(super) struct Intake(Mutex<PendingSums>);

fn sum(all: &mut BTreeMap<Key, Sums>, mut key: Key) -> &mut Sums {
    if all.len() >= SUMS_MAX && !all.contains_key(&key) {
        key.service.clear();
    }
    all.entry(key).or_default()
}

impl Intake {
    /// Adds the telemetry of a request that ended now.
    pub(super) fn add(&self, protocol: &'static str, taken: &RequestIntake, now_ms: Millis, took: Duration) {
        let (records, rejected) = (mem::take(&mut *taken.records.lock()), mem::take(&mut *taken.rejected.lock()));
        let (minute, bytes) = (now_ms - now_ms.rem_euclid(MINUTE_MS), taken.bytes.load(Relaxed));
        let mut waiting = self.0.lock();
        let PendingSums { sums: all, times } = &mut *waiting;
        let mut keep = |kept: &mut Vec<u64>, time: u64| {
            if kept.len() < TIMES_MAX && *times < ALL_TIMES_MAX {
                kept.push(time);
                *times += 1;
            }
        };
        for ((signal, service), brought) in records {
            let sums = sum(all, Key { minute, signal, protocol, service, reason: "" });
            sums.records += brought.records;
            // The size of the whole request: a proportional share would tell a caller who sees only this service what
            // else was in it.
            sums.bytes += brought.bytes.unwrap_or(bytes);
            sums.requests += 1;
            keep(&mut sums.micros, took.as_micros() as u64);
            if let Some(delay) = brought.delay_ms(now_ms) {
                keep(&mut sums.delays_ms, delay);
            }
        }
        for ((signal, reason), count) in rejected {
            sum(all, Key { minute, signal, protocol, service: String::new(), reason }).rejected += count;
        }
    }

    pub(super) fn take(&self) -> BTreeMap<Key, Sums> {
        mem::take(&mut *self.0.lock()).sums
    }
}

/// The protocol of a path.
pub(super) fn protocol_of(path: &str) -> &'static str {
    let is = |part: &str| path.contains(part);
    match path {
        _ if path.starts_with("/opentelemetry.proto.") => "otlp-grpc",
        _ if path.starts_with("/v1/") || is("/opentelemetry/") || is("/otlp") => "otlp-http",
        _ if path.starts_with("/metrics-api/api/v1/write") => "remote-write",
        _ if path.starts_with("/metrics-api/api/v1/import") => "import",
        _ if is("jsonline") => "jsonline",
        _ if is("/journald/") => "journald",
        _ if is("/services/collector") => "splunk",
        _ if is("_bulk") => "bulk",
        _ if is("/push") => "push",
        _ if is("spans") || is("/api/traces") => "spans",
        _ => "saas",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_added_up() {
        let (intake, taken) = (Intake::default(), RequestIntake::default());
        taken.add_bytes(90);
        for time in [121_000, 123_000] {
            taken.add_records("logs", "cart", AcceptedRecords::record(time, 20));
        }
        taken.add_records("logs", "cart", AcceptedRecords::untimed(4));
        taken.add_records("logs", "", AcceptedRecords { bytes: Some(5), ..AcceptedRecords::untimed(3) });
        taken.add_records("metrics", "", AcceptedRecords::untimed(2));
        taken.add_rejected("logs", "too_old", 5);
        intake.add("jsonline", &taken, 125_000, Duration::from_millis(7));
        // It is not added a second time.
        intake.add("jsonline", &taken, 125_000, Duration::from_millis(7));
        let all = intake.take();
        let told: Vec<String> = all
            .iter()
            .map(|(key, sums)| {
                let Key { minute, signal, service, reason, .. } = key;
                let Sums { records, bytes, rejected, requests, .. } = sums;
                format!("{minute} {signal} {service:?} {reason:?} {records} {bytes} {rejected} {requests}")
            })
            .collect();
        let wanted = [
            "120000 logs \"\" \"\" 3 5 0 1",
            "120000 logs \"\" \"too_old\" 0 0 5 0",
            "120000 logs \"cart\" \"\" 6 40 0 1",
            "120000 metrics \"\" \"\" 2 90 0 1",
        ];
        assert_eq!(told, wanted);
        let latencies: Vec<f64> = all.values().map(Sums::latency_ms).filter(|ms| !ms.is_nan()).collect();
        assert_eq!(latencies, [7.0; 3]);
        let lags: Vec<f64> = all.values().map(Sums::lag_ms).filter(|ms| !ms.is_nan()).collect();
        assert_eq!(lags, [3000.0], "from the mean of the times that are known");
        assert!(intake.take().is_empty());
    }

    #[test]
    fn services_are_bounded() {
        let intake = Intake::default();
        let requests = 2 * SUMS_MAX / SERVICES_MAX;
        for request in 0..requests {
            let taken = RequestIntake::default();
            for n in 0..2 * SERVICES_MAX {
                taken.add_records("logs", &format!("{request}-{n}"), AcceptedRecords::untimed(1));
            }
            taken.add_records("logs", &"x".repeat(SERVICE_BYTES_MAX + 1), AcceptedRecords::untimed(1));
            assert_eq!(taken.records.lock().len(), SERVICES_MAX + 1);
            intake.add("push", &taken, 0, Duration::ZERO);
        }
        let all = intake.take();
        assert_eq!(all.len(), SUMS_MAX, "one of them is of no service");
        assert_eq!(all.values().map(|sums| sums.records).sum::<u64>(), (requests * (2 * SERVICES_MAX + 1)) as u64);
    }

    #[test]
    fn times_are_bounded() {
        let intake = Intake::default();
        intake.0.lock().times = ALL_TIMES_MAX - 1;
        let taken = RequestIntake::default();
        for service in ["a", "b"] {
            taken.add_records("logs", service, AcceptedRecords::untimed(1));
        }
        intake.add("push", &taken, 0, Duration::from_millis(3));
        let all = intake.take();
        let told: Vec<(u64, bool)> = all.values().map(|sums| (sums.requests, sums.latency_ms().is_nan())).collect();
        assert_eq!(told, [(1, false), (1, true)], "what has no time is counted all the same");
        assert_eq!(intake.0.lock().times, 0, "there is room again");
    }

    #[test]
    fn protocols() {
        for (path, protocol) in [
            ("/v1/metrics", "otlp-http"),
            ("/insert/opentelemetry/v1/logs", "otlp-http"),
            ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "otlp-grpc"),
            ("/metrics-api/api/v1/write", "remote-write"),
            ("/metrics-api/api/v1/import/prometheus", "import"),
            ("/insert/jsonline", "jsonline"),
            ("/logs-api/insert/journald/upload", "journald"),
            ("/insert/splunk/services/collector/event", "splunk"),
            ("/services/collector", "splunk"),
            ("/insert/elasticsearch/_bulk", "bulk"),
            ("/loki/api/v1/push", "push"),
            ("/api/v2/logs", "saas"),
            ("/api/v2/spans", "spans"),
        ] {
            assert_eq!(protocol_of(path), protocol, "{path}");
        }
    }

    #[test]
    fn nineteen_of_twenty_are_not_above_it() {
        for (values, expected) in [
            (vec![7], 7.0),
            (vec![9, 1], 9.0),
            ((1..=19).collect(), 19.0),
            ((1..=20).rev().collect(), 19.0),
            ((1..=21).collect(), 20.0),
            ((1..=100).collect(), 95.0),
            (vec![5; 40], 5.0),
            (vec![u64::MAX, 0], u64::MAX as f64),
        ] {
            assert_eq!(p95(&values), expected, "{values:?}");
        }
        assert!(p95(&[]).is_nan());
    }

    #[test]
    fn delays_are_of_the_times_that_are_known() {
        let of = |times: &[Millis], untimed: u64| {
            let mut brought = AcceptedRecords::untimed(untimed);
            for time in times {
                brought.add(*time);
            }
            brought
        };
        for (brought, now_ms, expected) in [
            (of(&[], 0), 5, None),
            (of(&[], 7), 5, None),
            (of(&[100], 0), 150, Some(50)),
            (of(&[100, 200], 9), 250, Some(100)),
            // The mean is rounded down, also before 1970.
            (of(&[0, 1], 0), 10, Some(10)),
            (of(&[-1, 0], 0), 10, Some(11)),
            // Times in the future have no delay.
            (of(&[500], 0), 250, Some(0)),
            (of(&[i64::MIN, i64::MIN], 0), i64::MAX, Some(u64::MAX)),
            (of(&[i64::MAX, i64::MAX, i64::MAX], 0), i64::MIN, Some(0)),
        ] {
            assert_eq!(brought.delay_ms(now_ms), expected, "{brought:?} at {now_ms}");
        }
    }

    /// If the bytes of some records are known they are the service's bytes; otherwise those of the request are.
    #[test]
    fn records_of_a_service_are_joined() {
        let mut joined = AcceptedRecords::untimed(3);
        joined.join(AcceptedRecords::untimed(2));
        assert_eq!((joined.records, joined.bytes), (5, None));
        joined.join(AcceptedRecords::record(10, 7));
        joined.join(AcceptedRecords::record(30, 1));
        assert_eq!((joined.records, joined.bytes, joined.timed, joined.times_ms), (7, Some(8), 2, 40));
        let (intake, taken) = (Intake::default(), RequestIntake::default());
        taken.add_bytes(100);
        taken.add_bytes(50);
        taken.add_records("logs", "a", joined);
        taken.add_records("logs", "b", AcceptedRecords::untimed(1));
        taken.add_rejected("logs", "old", 2);
        taken.add_rejected("logs", "old", 3);
        taken.add_rejected("logs", "new", 0);
        intake.add("push", &taken, -1, Duration::ZERO);
        let all = intake.take();
        let told: Vec<(i64, &str, &str, u64, u64)> = all
            .iter()
            .map(|(key, sums)| (key.minute, key.service.as_str(), key.reason, sums.bytes, sums.rejected))
            .collect();
        // A time before 1970 is in the minute that precedes it.
        let minute = -60_000;
        let expected =
            [(minute, "", "new", 0, 0), (minute, "", "old", 0, 5), (minute, "a", "", 8, 0), (minute, "b", "", 150, 0)];
        assert_eq!(told, expected);
    }

    #[test]
    fn names_that_are_too_long_are_those_of_nobody() {
        let taken = RequestIntake::default();
        let (longest, longer) = ("é".repeat(SERVICE_BYTES_MAX / 2), "x".repeat(SERVICE_BYTES_MAX + 1));
        for service in [longest.as_str(), longer.as_str(), ""] {
            taken.add_records("logs", service, AcceptedRecords::untimed(1));
        }
        let records = taken.records.lock();
        let counts: Vec<(usize, u64)> = records.iter().map(|((_, name), all)| (name.len(), all.records)).collect();
        assert_eq!(counts, [(0, 2), (SERVICE_BYTES_MAX, 1)]);
    }

    #[test]
    fn protocols_are_told_by_their_paths() {
        for (path, protocol) in [
            ("/v1/traces", "otlp-http"),
            ("/metrics-api/api/v1/otlp/v1/metrics", "otlp-http"),
            ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "otlp-grpc"),
            ("/metrics-api/api/v1/import/csv", "import"),
            ("/logs-api/insert/searchengine/_bulk", "bulk"),
            ("/insert/aggregator/api/v1/push", "push"),
            ("/api/traces", "spans"),
            ("/insert/saas/api/v2/logs", "saas"),
            ("/", "saas"),
            ("", "saas"),
        ] {
            assert_eq!(protocol_of(path), protocol, "{path}");
        }
    }
}
