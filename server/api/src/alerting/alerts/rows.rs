//! Alerts and groups as JSON.

use std::collections::HashSet;

use quiver_alertd::router::{AlertRow, GroupRow};
use quiver_alerting::labels::{fingerprint, fingerprint_text};
use quiver_types::{Access, LabelSet};
use serde_json::{Map, Value, json};

use super::{allows, silences, time};
use crate::state::AppState;

/// Which alerts and silences a caller may see as the reason why another alert is muted; `None`: all.
pub(crate) struct Sight(Option<(HashSet<u64>, HashSet<String>)>);

impl Sight {
    /// Finds the alerts and silences that a caller may see.
    pub(crate) fn new(state: &AppState, access: &Access) -> Self {
        if access.is_full() {
            return Self(None);
        }
        let live = state.alertd.router.live();
        let alerts = live.iter().filter(|labels| allows(state, access, labels)).map(fingerprint).collect();
        let own = state.alertd.router.silences().into_iter().filter(|s| silences::is_within(state, access, s));
        Self(Some((alerts, own.map(|s| s.id.clone()).collect())))
    }

    /// Says whether he may see an alert, by its fingerprint.
    pub(crate) fn alert(&self, id: u64) -> bool {
        self.0.as_ref().is_none_or(|(alerts, _)| alerts.contains(&id))
    }

    /// Says whether he may see a silence.
    pub(crate) fn silence(&self, id: &str) -> bool {
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
    let silenced: Vec<&str> = row.silenced_by.iter().map(AsRef::as_ref).filter(|id| sight.silence(id)).collect();
    let receivers: Vec<Value> = row.receivers.iter().map(|name| json!({"name": name})).collect();
    let mut shown = json!({
        "labels": labels(&a.labels), "annotations": *a.annotations, "startsAt": time(a.starts_at),
        "endsAt": time(a.ends_at), "updatedAt": time(a.updated_at),
        "fingerprint": fingerprint_text(fingerprint(&a.labels)), "receivers": receivers,
        "generatorURL": &*a.generator_url,
        "status": {
            "state": row.state.as_str(), "silencedBy": silenced, "inhibitedBy": inhibited, "mutedBy": row.muted_by,
        },
    });
    if let Some(fields) = shown.as_object_mut().filter(|_| a.generator_url.is_empty()) {
        fields.remove("generatorURL");
    }
    shown
}

/// A group, without its alerts.
pub(super) fn group(group: &GroupRow) -> Value {
    json!({
        "labels": labels(&group.labels), "routeLabels": group.route_labels, "receiver": {"name": group.receiver},
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_alertd::router::AlertState;
    use quiver_alerting::dispatch::Alert;

    use super::*;

    fn row(name: &str) -> AlertRow {
        AlertRow {
            alert: Alert {
                labels: LabelSet::from_pairs([("alertname", name), ("a", "\"")]),
                annotations: Arc::new([("summary".to_owned(), "ä".to_owned())].into()),
                starts_at: 1_500_000_000,
                ends_at: 0,
                is_timeout: false,
                updated_at: -1_000_000,
                generator_url: Arc::default(),
            },
            receivers: vec!["ops".to_owned(), "mail".to_owned()],
            state: AlertState::Suppressed,
            silenced_by: vec!["s1".into(), "s2".into()],
            inhibited_by: vec![0xab, u64::MAX],
            muted_by: vec!["night".to_owned()],
        }
    }

    #[test]
    fn alerts_are_shown_as_alertmanager_shows_them() {
        let expected = json!({
            "labels": {"alertname": "A", "a": "\""}, "annotations": {"summary": "ä"},
            "startsAt": "1970-01-01T00:00:01.500Z", "endsAt": "1970-01-01T00:00:00.000Z",
            "updatedAt": "1969-12-31T23:59:59.999Z",
            "fingerprint": fingerprint_text(fingerprint(&row("A").alert.labels)),
            "receivers": [{"name": "ops"}, {"name": "mail"}],
            "status": {
                "state": "suppressed", "silencedBy": ["s1", "s2"],
                "inhibitedBy": ["00000000000000ab", "ffffffffffffffff"], "mutedBy": ["night"],
            },
        });
        assert_eq!(alert(&row("A"), &Sight(None)), expected, "where it comes from is not known, and not said");
        let mut known = row("A");
        known.alert.generator_url = "http://h/x".into();
        let shown = alert(&known, &Sight(None));
        assert_eq!(shown["generatorURL"], "http://h/x");
        assert_eq!(shown.as_object().map(Map::len), expected.as_object().map(|fields| fields.len() + 1));
    }

    /// What mutes an alert is shown only if the caller may see it; otherwise not even its id.
    #[test]
    fn what_mutes_is_told_to_who_may_see_it() {
        let shown = |alerts: &[u64], silences: &[&str]| {
            let silences = silences.iter().map(|id| (*id).to_owned()).collect();
            let status = alert(&row("A"), &Sight(Some((alerts.iter().copied().collect(), silences))))["status"].clone();
            (status["inhibitedBy"].clone(), status["silencedBy"].clone(), status["mutedBy"].clone())
        };
        let night = json!(["night"]);
        assert_eq!(shown(&[], &[]), (json!([]), json!([]), night.clone()));
        assert_eq!(shown(&[0xab], &["s2"]), (json!(["00000000000000ab"]), json!(["s2"]), night.clone()));
        assert_eq!(shown(&[0xac], &["s", "S1"]), (json!([]), json!([]), night));
    }

    #[test]
    fn groups_are_shown_as_alertmanager_shows_them() {
        let shown = group(&GroupRow {
            labels: LabelSet::from_pairs([("job", "cart")]),
            route_labels: [("team".to_owned(), "a".to_owned())].into(),
            receiver: "ops".to_owned(),
        });
        let expected = json!({"labels": {"job": "cart"}, "routeLabels": {"team": "a"}, "receiver": {"name": "ops"}});
        assert_eq!(shown, expected);
    }
}
