//! States of rules over a restart: the alerts of each rule, kept when they change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use quiver_alerting::rules::{Group, Remembered, RuleKind};
use quiver_types::{Millis, Result};
use serde_json::{Value, json};

use crate::kept::{Change, Kept, Kind};
use crate::router::{label_set, labels, texts};

/// The row that says when the service was up last.
pub(super) const HEARTBEAT_KEY: &str = "heartbeat";

/// What is kept of rules.
#[derive(Debug)]
pub(super) struct Memory {
    kept: Arc<Kept>,
    /// What was there at the start, until its rule shows up.
    found: Mutex<HashMap<Vec<u8>, Value>>,
    /// When the service was up last before this start.
    last_ms: Millis,
}

/// What is kept of a group's rules now; each rule by its key, with the parts whose change is worth a write.
pub(super) type KeptNow = BTreeMap<Vec<u8>, Value>;

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

fn shown(alert: &Remembered) -> Value {
    json!({
        "labels": labels(&alert.labels), "annotations": alert.annotations, "firing": alert.firing,
        "activeAt": alert.active_at, "firedAt": alert.fired_at, "keepFiringSince": alert.keep_firing_since,
    })
}

fn read(value: &Value) -> Option<Remembered> {
    let time = |name: &str| value[name].as_i64();
    Some(Remembered {
        labels: label_set(&value["labels"])?,
        annotations: texts(&value["annotations"])?,
        value: value["value"].as_f64().unwrap_or(f64::NAN),
        firing: value["firing"].as_bool()?,
        active_at: time("activeAt")?,
        fired_at: time("firedAt"),
        keep_firing_since: time("keepFiringSince"),
        // What was told before is told once more, which the router takes for the same.
        last_sent_at: None,
    })
}

impl Memory {
    /// Reads what there is.
    pub(super) async fn load(kept: Arc<Kept>) -> Result<Self> {
        let found = kept.load(Kind::Rule).await?.into_iter().collect();
        let service = kept.load(Kind::Service).await?;
        let beat = service.into_iter().find(|(key, _)| key == HEARTBEAT_KEY.as_bytes());
        let last_ms = beat.and_then(|(_, value)| value.as_i64()).unwrap_or(Millis::MIN / 2);
        Ok(Self { kept, found: Mutex::new(found), last_ms })
    }

    /// Restores the alerts of a group that shows up for the first time.
    pub(super) fn restore(&self, file: &str, group: &mut Group, now: Millis) {
        for (i, key) in keys(file, group).into_iter().enumerate() {
            let Some(value) = self.found.lock().remove(&key) else { continue };
            let alerts = value["alerts"].as_array().into_iter().flatten().filter_map(read).collect();
            // The row says when it was written; the service was up for longer, and nothing changed.
            let last = self.last_ms.max(value["at"].as_i64().unwrap_or(Millis::MIN / 2));
            group.restore(i, alerts, last, now);
        }
    }

    /// Keeps what has changed since `former`; gives what is kept now.
    pub(super) fn keep(&self, file: &str, group: &Group, former: &KeptNow, at: Millis) -> KeptNow {
        let mut now = KeptNow::new();
        let mut changes = Vec::new();
        for (key, status) in keys(file, group).into_iter().zip(&group.rules) {
            let alerts = if status.rule.kind == RuleKind::Alert { status.remembered() } else { Vec::new() };
            if alerts.is_empty() {
                continue;
            }
            let state: Value = alerts.iter().map(shown).collect::<Vec<_>>().into();
            if former.get(&key) != Some(&state) {
                let with_value = |(mut v, a): (Value, &Remembered)| {
                    v["value"] = a.value.into();
                    v
                };
                let rows = alerts.iter().map(shown).zip(&alerts).map(with_value).collect::<Vec<_>>();
                changes.push(Change::set(Kind::Rule, key.clone(), &json!({"at": at, "alerts": rows})));
            }
            now.insert(key, state);
        }
        let gone = former.keys().filter(|key| !now.contains_key(*key));
        changes.extend(gone.map(|key| Change::remove(Kind::Rule, key.clone())));
        if !changes.is_empty() {
            drop(self.kept.put(changes));
        }
        now
    }
}
