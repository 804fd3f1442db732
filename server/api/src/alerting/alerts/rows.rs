//! Alerts and groups as JSON.

use std::collections::HashSet;

use quiver_alertd::router::{AlertRow, Asked, GroupRow, Shown};
use quiver_alerting::labels::{fingerprint, fingerprint_text};
use quiver_types::{Access, LabelSet};
use serde_json::{Map, Value, json};

use super::{allows, silences, time};
use crate::state::AppState;

/// What a caller may see of what mutes an alert; `None`: all.
pub(super) struct Sight(Option<(HashSet<u64>, HashSet<String>)>);

impl Sight {
    /// Finds alerts and silences that a caller may see.
    pub(super) fn new(state: &AppState, access: &Access) -> Self {
        if access.is_full() {
            return Self(None);
        }
        let labels = |labels: &LabelSet| allows(state, access, labels);
        let all = Shown { active: true, silenced: true, inhibited: true, muted: true };
        let rows = state.alertd.router.alerts(&Asked { shown: all, labels: &labels, receiver: &|_| true });
        let alerts = rows.iter().map(|row| fingerprint(&row.alert.labels)).collect();
        let own = state.alertd.router.silences().into_iter().filter(|s| silences::is_within(state, access, s));
        Self(Some((alerts, own.map(|s| s.id).collect())))
    }

    fn alert(&self, id: u64) -> bool {
        self.0.as_ref().is_none_or(|(alerts, _)| alerts.contains(&id))
    }

    fn silence(&self, id: &str) -> bool {
        self.0.as_ref().is_none_or(|(_, silences)| silences.contains(id))
    }
}

fn labels(labels: &LabelSet) -> Value {
    Value::Object(labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

pub(super) fn alert(row: &AlertRow, sight: &Sight) -> Value {
    let a = &row.alert;
    let inhibited: Vec<String> =
        row.inhibited_by.iter().filter(|id| sight.alert(**id)).map(|id| fingerprint_text(*id)).collect();
    let silenced: Vec<&String> = row.silenced_by.iter().filter(|id| sight.silence(id)).collect();
    let receivers: Vec<Value> = row.receivers.iter().map(|name| json!({"name": name})).collect();
    let mut shown = json!({
        "labels": labels(&a.labels), "annotations": a.annotations, "startsAt": time(a.starts_at),
        "endsAt": time(a.ends_at), "updatedAt": time(a.updated_at),
        "fingerprint": fingerprint_text(fingerprint(&a.labels)), "receivers": receivers,
        "generatorURL": a.generator_url,
        "status": {
            "state": row.state.as_str(), "silencedBy": silenced, "inhibitedBy": inhibited, "mutedBy": row.muted_by,
        },
    });
    if let Some(fields) = shown.as_object_mut().filter(|_| a.generator_url.is_empty()) {
        fields.remove("generatorURL");
    }
    shown
}

pub(super) fn group(group: &GroupRow, sight: &Sight) -> Value {
    json!({
        "labels": labels(&group.labels), "routeLabels": group.route_labels, "receiver": {"name": group.receiver},
        "alerts": group.alerts.iter().map(|row| alert(row, sight)).collect::<Vec<_>>(),
    })
}
