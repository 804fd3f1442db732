//! Stores the alerts of each rule whenever they change, so that their state survives a restart.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::Mutex;
use quiver_alerting::rules::{Group, OUTAGE_MAX_MS, RuleKind, StoredAlert};
use quiver_types::{Millis, Result};
use serde_json::{Value, json};

use crate::durable_state::{Change, RowKind, StateDatabase};
use crate::router::{label_set, labels, texts};

/// The row that says when the service was up last.
pub(super) const HEARTBEAT_KEY: &str = "heartbeat";

/// The stored states of rules.
#[derive(Debug)]
pub(super) struct StoredRuleStates {
    kept: Arc<StateDatabase>,
    /// What was there at the start, until its rule shows up.
    found: Mutex<HashMap<Vec<u8>, Value>>,
    /// When the service was up last before this start.
    last_ms: Millis,
}

/// A rule with stored alerts that no longer exists after a restart.
#[derive(Debug)]
pub(super) struct RemovedRule {
    pub(super) file: String,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) expr: String,
    pub(super) alerts: Vec<StoredAlert>,
    /// When the service was up last.
    pub(super) last: Millis,
}

/// What is kept of a group's rules now: each rule by its key, with a digest of the parts whose change is worth a write.
pub(super) type StoredDigests = BTreeMap<Vec<u8>, u64>;

/// Gives the keys of a group's rules: file, group, identity, and which of equal ones.
fn keys(file: &str, group: &Group) -> Vec<Vec<u8>> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let key = |status: &quiver_alerting::rules::RuleStatus| {
        let (name, expr, language, labels) = status.identity();
        let text = json!([file, group.model.name, name, expr, language, labels]).to_string();
        let n = seen.entry(text.clone()).or_default();
        *n += 1;
        format!("{n}:{text}").into_bytes()
    };
    group.rules.iter().map(key).collect()
}

fn shown(alert: &StoredAlert) -> Value {
    json!({
        "labels": labels(&alert.labels), "annotations": *alert.annotations, "firing": alert.firing,
        "activeAt": alert.active_at, "firedAt": alert.fired_at, "period": alert.period,
        "keepFiringSince": alert.keep_firing_since, "value": alert.value,
    })
}

/// Values change with each evaluation, and annotations with them: the first one after a restart makes them anew.
fn digest(alerts: &[StoredAlert]) -> u64 {
    let mut out = DefaultHasher::new();
    for alert in alerts {
        let times = (alert.active_at, alert.fired_at, alert.period, alert.keep_firing_since);
        (alert.labels.canonical(), alert.firing, times).hash(&mut out);
    }
    out.finish()
}

/// The row of a rule. There may be so many alerts that a tree of all would take hundreds of megabytes.
fn row(alerts: &[StoredAlert], at: Millis) -> String {
    let mut out = format!("{{\"at\":{at},\"alerts\":[");
    for (i, alert) in alerts.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&shown(alert).to_string());
    }
    out + "]}"
}

fn read(value: &Value) -> Option<StoredAlert> {
    let time = |name: &str| value[name].as_i64();
    Some(StoredAlert {
        labels: label_set(&value["labels"])?,
        annotations: texts(&value["annotations"])?.into(),
        value: value["value"].as_f64().unwrap_or(f64::NAN),
        firing: value["firing"].as_bool()?,
        active_at: time("activeAt")?,
        fired_at: time("firedAt"),
        period: time("period"),
        keep_firing_since: time("keepFiringSince"),
        // What was told before is told once more, which the router takes for the same.
        last_sent_at: None,
    })
}

fn alerts_of(value: &Value) -> Vec<StoredAlert> {
    value["alerts"].as_array().into_iter().flatten().filter_map(read).collect()
}

impl StoredRuleStates {
    /// Reads what there is.
    pub(super) async fn load(kept: Arc<StateDatabase>) -> Result<Self> {
        let found = kept.load(RowKind::Rule).await?.into_iter().collect();
        let service = kept.load(RowKind::Service).await?;
        let beat = service.into_iter().find(|(key, _)| key == HEARTBEAT_KEY.as_bytes());
        let last_ms = beat.and_then(|(_, value)| value.as_i64()).unwrap_or(Millis::MIN / 2);
        Ok(Self { kept, found: Mutex::new(found), last_ms })
    }

    /// Says whether nothing was ever kept here: the database is new, or was lost.
    pub(super) fn is_new(&self) -> bool {
        self.last_ms < 0
    }

    /// Restores the alerts of a group that shows up for the first time.
    pub(super) fn restore(&self, file: &str, group: &mut Group, now: Millis) {
        let mut found = self.found.lock();
        for (i, key) in keys(file, group).into_iter().enumerate() {
            let Some(value) = found.get(&key) else { continue };
            let last = self.last_of(value);
            if now - last <= OUTAGE_MAX_MS {
                group.restore(i, alerts_of(value), last, now);
                found.remove(&key);
            }
        }
    }

    /// The row says when it was written; the service was up for longer, and nothing changed.
    fn last_of(&self, value: &Value) -> Millis {
        self.last_ms.max(value["at"].as_i64().unwrap_or(Millis::MIN / 2))
    }

    /// Gives what no rule has taken up once all are there, and forgets it: rules that are gone or of another identity, and
    /// what was down for too long.
    pub(super) fn gone(&self) -> Vec<RemovedRule> {
        let found = std::mem::take(&mut *self.found.lock());
        if found.is_empty() {
            return Vec::new();
        }
        drop(self.kept.put(found.keys().map(|key| Change::remove(RowKind::Rule, key.clone())).collect()));
        let gone = |(key, value): (Vec<u8>, Value)| {
            let identity: Value = serde_json::from_slice(key.splitn(2, |&b| b == b':').nth(1)?).ok()?;
            let text = |i: usize| identity[i].as_str().map(str::to_owned);
            let (file, group, name, expr) = (text(0)?, text(1)?, text(2)?, text(3)?);
            Some(RemovedRule { file, group, name, expr, alerts: alerts_of(&value), last: self.last_of(&value) })
        };
        found.into_iter().filter_map(gone).collect()
    }

    /// Keeps what has changed since `former`; gives what is kept now.
    pub(super) fn keep(&self, file: &str, group: &Group, former: &StoredDigests, at: Millis) -> StoredDigests {
        let mut now = StoredDigests::new();
        let mut changes = Vec::new();
        for (key, status) in keys(file, group).into_iter().zip(&group.rules) {
            let alerts = if status.rule.kind == RuleKind::Alert { status.remembered() } else { Vec::new() };
            if alerts.is_empty() {
                continue;
            }
            let digest = digest(&alerts);
            if former.get(&key) != Some(&digest) {
                changes.push(Change { kind: RowKind::Rule, key: key.clone(), value: Some(row(&alerts, at)) });
            }
            now.insert(key, digest);
        }
        let gone = former.keys().filter(|key| !now.contains_key(*key));
        changes.extend(gone.map(|key| Change::remove(RowKind::Rule, key.clone())));
        if !changes.is_empty() {
            drop(self.kept.put(changes));
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::LabelSet;

    use super::*;

    fn alert(i: &str) -> StoredAlert {
        StoredAlert {
            labels: LabelSet::from_pairs([("alertname", "A"), ("i", i)]),
            annotations: Arc::new([("summary".to_owned(), "\"x\"".to_owned())].into()),
            value: 1.5,
            firing: true,
            active_at: 10,
            fired_at: Some(20),
            period: Some(20),
            keep_firing_since: None,
            last_sent_at: None,
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let all = vec![alert("1"), StoredAlert { fired_at: None, firing: false, ..alert("\"") }];
        let row: Value = serde_json::from_str(&row(&all, 7)).unwrap();
        assert_eq!((alerts_of(&row), row["at"].as_i64()), (all, Some(7)));
        let nan = super::row(&[StoredAlert { value: f64::NAN, ..alert("1") }], 7);
        assert!(alerts_of(&serde_json::from_str(&nan).unwrap())[0].value.is_nan());
    }

    /// A template that shows the value would have all alerts of a rule written at each evaluation.
    #[test]
    fn what_is_worth_a_write() {
        let check = |other: StoredAlert, expected: bool| {
            assert_eq!(digest(&[alert("1")]) != digest(std::slice::from_ref(&other)), expected, "{other:?}");
        };
        check(alert("1"), false);
        check(StoredAlert { value: 2.5, ..alert("1") }, false);
        check(StoredAlert { annotations: Arc::default(), ..alert("1") }, false);
        check(StoredAlert { last_sent_at: Some(5), ..alert("1") }, false);
        check(alert("2"), true);
        check(StoredAlert { firing: false, ..alert("1") }, true);
        check(StoredAlert { active_at: 11, ..alert("1") }, true);
        check(StoredAlert { fired_at: None, ..alert("1") }, true);
        check(StoredAlert { keep_firing_since: Some(20), ..alert("1") }, true);
        assert_ne!(digest(&[alert("1")]), digest(&[alert("1"), alert("2")]));
    }
}
