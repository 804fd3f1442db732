//! Metrics of alerting, as `/metrics` shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::background::BackgroundTasks;
use crate::history::History;

/// Upper bounds of buckets, in seconds.
const BOUNDS: [f64; 10] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// Times in buckets.
#[derive(Debug, Default)]
pub struct Times {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_micros: AtomicU64,
}

impl Times {
    /// Counts one run that took so long.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(took.as_micros() as u64, Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let (comma, mut below) = (if labels.is_empty() { "" } else { "," }, 0);
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {}", self.sum_micros.load(Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count{braces} {count}");
    }
}

/// Figures of one kind of integration.
#[derive(Debug, Default)]
pub(crate) struct Integration {
    pub(crate) sent: u64,
    pub(crate) failed: BTreeMap<&'static str, u64>,
    pub(crate) latency: Times,
}

/// All figures of alerting: counters since the process began, but for `alerts`, `queue` and
/// `message_bytes`, which are of now.
/// By default no kind of integration is there before it is told something.
#[derive(Debug, Default)]
pub struct AlertMetrics {
    /// Evaluations of groups.
    pub evaluations: AtomicU64,
    /// Evaluations of rules that failed.
    pub rule_failures: AtomicU64,
    /// Cycles that were left out because the one before still ran.
    pub missed: AtomicU64,
    /// From when a group was due to when it began.
    pub start_delay: Times,
    /// How long groups take.
    pub group_time: Times,
    /// Alerts that were posted or came from rules.
    pub received: AtomicU64,
    /// Alerts that were refused.
    pub invalid: AtomicU64,
    /// Alerts that the router knows now.
    pub alerts: AtomicU64,
    /// Notifications that are under way now.
    pub queue: AtomicU64,
    /// Attempts to send a message that are made now. Not shown: it is for the end of the server.
    pub sending: AtomicU64,
    /// Bytes of messages that are under way now.
    pub message_bytes: AtomicU64,
    /// Messages that found no room at first.
    pub message_waits: AtomicU64,
    /// Records of what was done; it counts those that are lost.
    pub history: Arc<History>,
    /// Faults of tasks that run as long as the server does, those of alerting and others.
    pub background: Arc<BackgroundTasks>,
    pub(crate) integrations: Mutex<BTreeMap<&'static str, Integration>>,
}

impl AlertMetrics {
    /// Makes figures in which every kind and reason is there from the start, so that rates count the first failure, too.
    pub(crate) fn of_all(kinds: impl Iterator<Item = &'static str>, reasons: &[&'static str]) -> Self {
        let none =
            || Integration { failed: reasons.iter().map(|reason| (*reason, 0)).collect(), ..Integration::default() };
        let integrations = Mutex::new(kinds.map(|name| (name, none())).collect());
        Self { integrations, ..Self::default() }
    }

    /// Changes the figures of a kind of integration.
    pub(crate) fn of(&self, kind: &'static str, change: impl FnOnce(&mut Integration)) {
        change(self.integrations.lock().entry(kind).or_default());
    }

    /// Writes all in the exposition format.
    pub fn write(&self, out: &mut String) {
        let plain = [
            ("quiver_rule_group_evaluations_total", "counter", "Evaluations of rule groups.", &self.evaluations),
            ("quiver_rule_failures_total", "counter", "Evaluations of rules that failed.", &self.rule_failures),
            (
                "quiver_rule_missed_iterations_total",
                "counter",
                "Cycles of rule groups left out because the one before still ran.",
                &self.missed,
            ),
            ("quiver_alerts_received_total", "counter", "Alerts that came from rules or were posted.", &self.received),
            ("quiver_alerts_invalid_total", "counter", "Alerts that were refused.", &self.invalid),
            ("quiver_alerts", "gauge", "Alerts that are known.", &self.alerts),
            ("quiver_notification_queue_length", "gauge", "Notifications under way.", &self.queue),
            (
                "quiver_notification_messages_bytes",
                "gauge",
                "Memory of messages under way to receivers.",
                &self.message_bytes,
            ),
            (
                "quiver_notification_room_waits_total",
                "counter",
                "Messages that waited until others left them room.",
                &self.message_waits,
            ),
        ];
        for (name, kind, help, value) in plain {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", value.load(Relaxed));
        }
        let name = "quiver_alert_history_lost_total";
        let help = "Records of what alerting did that could not be stored.";
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {}", self.history.lost());
        let times = [
            ("quiver_rule_group_start_delay_seconds", "From when a group was due to its beginning.", &self.start_delay),
            ("quiver_rule_group_duration_seconds", "How long evaluations of groups take.", &self.group_time),
        ];
        for (name, help, times) in times {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
            times.write(out, name, "");
        }
        self.write_integrations(out);
    }

    fn write_integrations(&self, out: &mut String) {
        let integrations = self.integrations.lock();
        let name = "quiver_notifications_total";
        let _ = writeln!(out, "# HELP {name} Flushes that tell a receiver.\n# TYPE {name} counter");
        for (kind, figures) in integrations.iter() {
            let _ = writeln!(out, "{name}{{integration=\"{kind}\"}} {}", figures.sent);
        }
        let name = "quiver_notifications_failed_total";
        let _ = writeln!(out, "# HELP {name} Flushes that could not, by reason.\n# TYPE {name} counter");
        for (kind, figures) in integrations.iter() {
            for (reason, count) in &figures.failed {
                let _ = writeln!(out, "{name}{{integration=\"{kind}\",reason=\"{reason}\"}} {count}");
            }
        }
        let name = "quiver_notification_latency_seconds";
        let _ = writeln!(out, "# HELP {name} How long attempts take.\n# TYPE {name} histogram");
        for (kind, figures) in integrations.iter() {
            figures.latency.write(out, name, &format!("integration=\"{kind}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{REASONS, names};

    #[test]
    fn exposition() {
        let metrics = AlertMetrics::default();
        metrics.start_delay.observe(Duration::from_millis(60));
        metrics.of("webhook", |i| {
            i.sent += 2;
            *i.failed.entry("other").or_default() += 1;
            i.latency.observe(Duration::from_secs(90));
        });
        let mut out = String::new();
        metrics.write(&mut out);
        for line in [
            "quiver_rule_group_start_delay_seconds_bucket{le=\"0.05\"} 0",
            "quiver_rule_group_start_delay_seconds_bucket{le=\"0.1\"} 1",
            "quiver_rule_group_start_delay_seconds_sum 0.06",
            "quiver_notifications_total{integration=\"webhook\"} 2",
            "quiver_notifications_failed_total{integration=\"webhook\",reason=\"other\"} 1",
            "quiver_notification_latency_seconds_bucket{integration=\"webhook\",le=\"60\"} 0",
            "quiver_notification_latency_seconds_bucket{integration=\"webhook\",le=\"+Inf\"} 1",
        ] {
            assert!(out.lines().any(|l| l == line), "{line} in {out}");
        }
    }

    /// A bucket holds its bound; what is beyond all of them is in the last one alone.
    #[test]
    fn buckets_of_times() {
        let times = Times::default();
        for millis in [0, 5, 6, 20, 60_000, 60_001] {
            times.observe(Duration::from_millis(millis));
        }
        let mut out = String::new();
        times.write(&mut out, "t", "");
        let expected = [
            ("0.005", 2),
            ("0.02", 4),
            ("0.05", 4),
            ("0.1", 4),
            ("0.25", 4),
            ("0.5", 4),
            ("1", 4),
            ("5", 4),
            ("15", 4),
            ("60", 5),
            ("+Inf", 6),
        ];
        let mut lines = out.lines();
        for (bound, count) in expected {
            assert_eq!(lines.next(), Some(format!("t_bucket{{le=\"{bound}\"}} {count}").as_str()));
        }
        assert_eq!((lines.next(), lines.next(), lines.next()), (Some("t_sum 120.032"), Some("t_count 6"), None));
        let mut labelled = String::new();
        Times::default().write(&mut labelled, "t", "a=\"b\"");
        assert!(labelled.starts_with("t_bucket{a=\"b\",le=\"0.005\"} 0\n"), "{labelled}");
        assert!(labelled.ends_with("t_sum{a=\"b\"} 0\nt_count{a=\"b\"} 0\n"), "{labelled}");
    }

    /// Rates count the first failure only where there was a zero before it.
    #[test]
    fn every_kind_and_reason_is_there_from_the_start() {
        let mut out = String::new();
        AlertMetrics::of_all(names(), &REASONS).write(&mut out);
        for kind in names() {
            assert!(out.contains(&format!("quiver_notifications_total{{integration=\"{kind}\"}} 0\n")), "{kind}");
            for reason in REASONS {
                let line =
                    format!("quiver_notifications_failed_total{{integration=\"{kind}\",reason=\"{reason}\"}} 0\n");
                assert!(out.contains(&line), "{line}");
            }
        }
        // Each name is told of once, before its samples.
        let types: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let all: std::collections::BTreeSet<&str> = types.iter().copied().collect();
        assert_eq!(all.len(), types.len(), "{types:?}");
    }
}
