//! The notification log, and the decision whether to notify.

use std::collections::{BTreeMap, BTreeSet};

use super::Alert;
use crate::labels::fingerprint;

/// How long an entry is kept.
const RETENTION_NS: i64 = 120 * 3600 * 1_000_000_000;

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing was sent yet, or no firing alert.
    First,
    /// An alert is firing that was not sent as firing.
    NewAlerts,
    /// No alert is firing any more.
    AllResolved,
    /// An alert was resolved that the receiver knows as firing.
    SomeResolved,
    /// The repeat interval is over.
    Repeat,
}

impl Reason {
    /// The text for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first notification",
            Self::NewAlerts => "new alerts added",
            Self::AllResolved => "all alerts resolved",
            Self::SomeResolved => "some alerts resolved",
            Self::Repeat => "repeat interval elapsed",
        }
    }
}

/// Key of a log entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    /// Key of the alert group.
    pub group_key: String,
    /// Name of the receiver.
    pub receiver: String,
    /// Kind of the integration.
    pub integration: String,
    /// Its index among the integrations of its kind.
    pub idx: usize,
}

/// Values that a receiver returned for a message, by name, with which a later message can update it.
pub type ReceiverData = BTreeMap<String, String>;

/// The last notification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// Its time in Unix nanoseconds.
    pub at: i64,
    /// Fingerprints of the alerts sent as firing.
    pub firing: BTreeSet<u64>,
    /// Fingerprints of the alerts sent as resolved.
    pub resolved: BTreeSet<u64>,
    /// Fingerprints of the alerts that the receiver believes to be firing.
    pub held: BTreeSet<u64>,
    /// What the receiver returned for the current message.
    pub said: ReceiverData,
}

/// A notification to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Why it is sent.
    pub reason: Reason,
    /// The alerts of the message; empty: only the log is updated.
    pub alerts: Vec<Alert>,
    /// The log entry for after the notification was sent.
    pub entry: Entry,
}

/// The last notification of each integration about each group, so that nothing is sent twice or lost.
#[derive(Debug, Clone, Default)]
pub struct NotificationLog(BTreeMap<LogKey, Entry>);

impl NotificationLog {
    /// Finds the last notification.
    pub fn get(&self, key: &LogKey) -> Option<&Entry> {
        self.0.get(key)
    }

    /// Records a notification, after the receiver has responded.
    pub fn set(&mut self, key: LogKey, entry: Entry) {
        self.0.insert(key, entry);
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (&LogKey, &Entry)> {
        self.0.iter()
    }

    /// Shifts all times by a clock jump, so that it neither repeats nor forgets a notification.
    pub fn shift(&mut self, by: i64) {
        self.0.values_mut().for_each(|entry| entry.at = entry.at.saturating_add(by));
    }

    /// Removes old entries; returns their keys.
    pub fn forget(&mut self, now: i64) -> Vec<LogKey> {
        let is_old = |entry: &Entry| entry.at.saturating_add(RETENTION_NS) < now;
        let old: Vec<LogKey> = self.0.iter().filter(|(_, e)| is_old(e)).map(|(key, _)| key.clone()).collect();
        self.0.retain(|_, entry| !is_old(entry));
        old
    }

    /// Decides whether an integration is notified of the unmuted alerts of a group.
    pub fn decide(
        &self,
        key: &LogKey,
        alerts: &[Alert],
        send_resolved: bool,
        repeat_interval_ms: i64,
        now: i64,
    ) -> Option<Decision> {
        if alerts.is_empty() {
            // All alerts are muted: none was resolved, and the entry is still valid when they are unmuted.
            return None;
        }
        let entry = self.0.get(key);
        let ids = |resolved: bool| -> BTreeSet<u64> {
            alerts.iter().filter(|a| a.is_resolved(now) == resolved).map(|a| fingerprint(&a.labels)).collect()
        };
        let (firing, resolved) = (ids(false), ids(true));
        let empty = BTreeSet::new();
        let (told, held) = entry.map_or((&empty, &empty), |e| (&e.firing, &e.held));
        let ended: BTreeSet<u64> = resolved.intersection(held).copied().collect();
        let repeat_ns = repeat_interval_ms.saturating_mul(1_000_000);
        let reason = if told.is_empty() && !firing.is_empty() {
            Reason::First
        } else if !firing.is_subset(told) {
            Reason::NewAlerts
        } else if firing.is_empty() {
            if told.is_empty() && (ended.is_empty() || !send_resolved) {
                return None;
            }
            Reason::AllResolved
        } else if send_resolved && !ended.is_empty() {
            Reason::SomeResolved
        } else if entry.is_some_and(|e| e.at < now.saturating_sub(repeat_ns)) {
            Reason::Repeat
        } else {
            return None;
        };
        let sent = |a: &&Alert| {
            let id = fingerprint(&a.labels);
            if a.is_resolved(now) { send_resolved && ended.contains(&id) } else { true }
        };
        let message = alerts.iter().filter(sent).cloned().collect();
        let mut still_held: BTreeSet<u64> = held.union(&firing).copied().collect();
        still_held.retain(|id| !resolved.contains(id));
        let resolved = if send_resolved { ended } else { BTreeSet::new() };
        // A first notification is a message of its own and does not update an older one.
        let said = entry.filter(|_| reason != Reason::First).map(|e| e.said.clone()).unwrap_or_default();
        Some(Decision { reason, alerts: message, entry: Entry { at: now, firing, resolved, held: still_held, said } })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_types::LabelSet;

    use super::*;

    const S: i64 = 1_000_000_000;

    fn alerts(states: &str) -> Vec<Alert> {
        // Each letter is an alert; an upper-case one is firing.
        let alert = |c: char| Alert {
            labels: LabelSet::from_pairs([("n", c.to_ascii_lowercase().to_string().as_str())]),
            annotations: Arc::default(),
            starts_at: 0,
            ends_at: if c.is_ascii_uppercase() { i64::MAX } else { 1 },
            is_timeout: false,
            updated_at: 0,
            generator_url: Arc::default(),
        };
        states.chars().map(alert).collect()
    }

    /// Runs flushes ten seconds apart; returns reason and alerts of each notification.
    fn run(flushes: &[&str], send_resolved: bool, repeat_s: i64) -> Vec<String> {
        run_with(flushes, send_resolved, repeat_s, false)
    }

    /// As [`run`]. With `says` the receiver returns the number of the flush for each new message.
    fn run_with(flushes: &[&str], send_resolved: bool, repeat_s: i64, says: bool) -> Vec<String> {
        let key = LogKey { group_key: "g".into(), receiver: "r".into(), integration: "webhook".into(), idx: 0 };
        let mut log = NotificationLog::default();
        let mut out = Vec::new();
        for (i, states) in flushes.iter().enumerate() {
            let now = (i as i64 + 1) * 10 * S;
            let Some(decision) = log.decide(&key, &alerts(states), send_resolved, repeat_s * 1000, now) else {
                out.push("-".to_owned());
                continue;
            };
            let shown: String =
                decision
                    .alerts
                    .iter()
                    .map(|a| {
                        if a.is_resolved(now) { a.labels.get("n").to_owned() } else { a.labels.get("n").to_uppercase() }
                    })
                    .collect();
            let said = decision.entry.said.get("at").map(|at| format!(" of {at}")).unwrap_or_default();
            out.push(format!("{:?} {shown}{said}", decision.reason));
            let mut entry = decision.entry;
            if says {
                entry.said.entry("at".to_owned()).or_insert_with(|| i.to_string());
            }
            log.set(key.clone(), entry);
        }
        out
    }

    #[test]
    fn what_is_told() {
        let check = |flushes: &[&str], resolved: bool, expected: &[&str]| {
            assert_eq!(run(flushes, resolved, 1000), expected, "{flushes:?}");
        };
        check(
            &["A", "A", "AB", "Ab", "Ab", "ab", "ab"],
            true,
            &["First A", "-", "NewAlerts AB", "SomeResolved Ab", "-", "AllResolved a", "-"],
        );
        check(&["AB", "Ab", "ab", "A"], false, &["First AB", "-", "AllResolved ", "First A"]);
        // An alert resolved before it was sent is never sent.
        check(&["a", "Ab", "A"], true, &["-", "First A", "-"]);
        // An alert resolved while it was muted is sent when it is unmuted.
        check(&["AB", "A", "Ab"], true, &["First AB", "-", "SomeResolved Ab"]);
        // A group that was muted as a whole is not sent again.
        check(&["AB", "", "AB", "", "aB"], true, &["First AB", "-", "-", "-", "SomeResolved aB"]);
        check(&["A", "", "a"], true, &["First A", "-", "AllResolved a"]);
        assert_eq!(run(&["A", "A", "A", "A"], true, 15), ["First A", "-", "Repeat A", "-"]);
    }

    #[test]
    fn what_the_receiver_said_is_known_until_all_begins_anew() {
        let told = run_with(&["A", "AB", "Ab", "ab", "A", "AB"], true, 1000, true);
        let expected = [
            "First A",
            "NewAlerts AB of 0",
            "SomeResolved Ab of 0",
            "AllResolved a of 0",
            "First A",
            "NewAlerts AB of 4",
        ];
        assert_eq!(told, expected);
    }

    /// Sent again once the repeat interval is over; each message restarts the interval.
    #[test]
    fn repeated() {
        let check = |flushes: &[&str], resolved: bool, repeat_s: i64, expected: &[&str]| {
            assert_eq!(run(flushes, resolved, repeat_s), expected, "{flushes:?} {repeat_s}");
        };
        check(&["A"; 6], true, 20, &["First A", "-", "-", "Repeat A", "-", "-"]);
        check(&["A", "A", "AB", "AB", "AB", "AB"], true, 20, &["First A", "-", "NewAlerts AB", "-", "-", "Repeat AB"]);
        check(&["A", "A", "A"], true, 0, &["First A", "Repeat A", "Repeat A"]);
        check(&["A", "A"], true, i64::MAX / 1000, &["First A", "-"]);
        // Resolved alerts are not repeated, nor sent to integrations without `send_resolved`.
        check(&["AB", "Ab", "Ab", "Ab"], false, 20, &["First AB", "-", "-", "Repeat A"]);
        check(&["A", "a", "a", "a", "a"], true, 20, &["First A", "AllResolved a", "-", "-", "-"]);
    }

    fn key(group_key: &str, receiver: &str, integration: &str, idx: usize) -> LogKey {
        LogKey { group_key: group_key.into(), receiver: receiver.into(), integration: integration.into(), idx }
    }

    /// Each integration of each receiver has its own entry for each group.
    #[test]
    fn whom_it_is_about() {
        let told = key("g", "r", "webhook", 0);
        let mut log = NotificationLog::default();
        let decision = log.decide(&told, &alerts("A"), true, 1000, S).expect("the first one");
        log.set(told.clone(), decision.entry);
        assert_eq!(log.decide(&told, &alerts("A"), true, 1_000_000, 2 * S), None);
        for other in [
            key("h", "r", "webhook", 0),
            key("g", "q", "webhook", 0),
            key("g", "r", "email", 0),
            key("g", "r", "webhook", 1),
        ] {
            let decision = log.decide(&other, &alerts("A"), true, 1_000_000, 2 * S);
            assert_eq!(decision.map(|d| d.reason), Some(Reason::First), "{other:?}");
        }
    }

    /// The entry has what the receiver knows after the message.
    #[test]
    fn what_is_noted() {
        let key = key("g", "r", "webhook", 0);
        for send_resolved in [true, false] {
            let mut log = NotificationLog::default();
            let mut note = |states: &str, now: i64| {
                let decision = log.decide(&key, &alerts(states), send_resolved, 1_000_000, now).expect(states);
                let counts =
                    [&decision.entry.firing, &decision.entry.resolved, &decision.entry.held].map(BTreeSet::len);
                assert_eq!(decision.entry.at, now);
                log.set(key.clone(), decision.entry);
                (decision.alerts.len(), counts)
            };
            assert_eq!(note("ABc", S), (2, [2, 0, 2]), "what was never told does not end");
            assert_eq!(note("ABD", 2 * S), (3, [3, 0, 3]));
            let ended = usize::from(send_resolved) * 3;
            assert_eq!(note("abd", 3 * S), (ended, [0, ended, 0]));
            assert_eq!(note("A", 4 * S), (1, [1, 0, 1]));
        }
    }

    #[test]
    fn forgotten() {
        let mut log = NotificationLog::default();
        for (group, at) in [("old", 0), ("young", 1), ("last", i64::MAX)] {
            log.set(key(group, "r", "webhook", 0), Entry { at, ..Entry::default() });
        }
        assert_eq!(log.forget(RETENTION_NS), []);
        assert_eq!(log.forget(RETENTION_NS + 1), [key("old", "r", "webhook", 0)]);
        assert_eq!(log.get(&key("old", "r", "webhook", 0)), None);
        assert_eq!(log.forget(i64::MAX), [key("young", "r", "webhook", 0)]);
        assert!(log.get(&key("last", "r", "webhook", 0)).is_some());
    }
}
