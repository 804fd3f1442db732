//! Restores alerts after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_types::{LabelSet, Millis};

use super::alert::{ActiveAlert, AlertState};
use super::engine::ElementValue;
use super::group::{Group, RuleStatus};
use super::resumption::{OUTAGE_MAX_MS, resumed};

/// The stored state of an alert.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAlert {
    /// Its labels including `alertname`, which identify it.
    pub labels: LabelSet,
    /// Its expanded annotations.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Its last value; NaN if that was a histogram.
    pub value: f64,
    /// Whether it was firing.
    pub firing: bool,
    /// Since when the expression returned it.
    pub active_at: Millis,
    /// Since when it was firing.
    pub fired_at: Option<Millis>,
    /// Identifies its firing period; `None`: `fired_at` does.
    pub period: Option<Millis>,
    /// The first evaluation without it, while it was kept firing.
    pub keep_firing_since: Option<Millis>,
    /// When it was last sent.
    pub last_sent_at: Option<Millis>,
}

impl RuleStatus {
    /// The state to store: of pending and firing alerts.
    pub fn remembered(&self) -> Vec<StoredAlert> {
        let live = self.alerts().filter(|a| a.state != AlertState::Inactive);
        live.map(|alert| StoredAlert {
            labels: alert.labels.clone(),
            annotations: Arc::clone(&alert.annotations),
            value: match alert.value {
                ElementValue::Float(value) => value,
                ElementValue::Histogram(..) => f64::NAN,
            },
            firing: alert.state == AlertState::Firing,
            active_at: alert.active_at,
            fired_at: alert.fired_at,
            period: alert.period,
            keep_firing_since: alert.keep_firing_since,
            last_sent_at: alert.last_sent_at,
        })
        .collect()
    }
}

impl StoredAlert {
    /// Converts it back to an alert.
    pub fn into_alert(self) -> ActiveAlert {
        ActiveAlert {
            labels: self.labels,
            annotations: self.annotations,
            value: ElementValue::Float(self.value),
            state: if self.firing { AlertState::Firing } else { AlertState::Pending },
            active_at: self.active_at,
            fired_at: self.fired_at,
            period: self.period.or(self.fired_at),
            resolved_at: None,
            keep_firing_since: self.keep_firing_since,
            last_sent_at: self.last_sent_at,
            valid_until: None,
            restored: true,
        }
    }
}

impl Group {
    /// Restores alerts of a rule whose last evaluation was at `last_cycle`. After too long a gap nothing is restored.
    ///
    /// Firing alerts continue as they were. Pending ones keep their time if `for` is less than ten minutes. Otherwise
    /// the downtime does not count, and at least ten minutes must still pass, as in Prometheus. If the clock was set back,
    /// their times move with it: in the future they would lie for as long as nobody is told.
    pub fn restore(&mut self, rule: usize, remembered: Vec<StoredAlert>, last_cycle: Millis, now: Millis) {
        let Some(status) = self.rules.get_mut(rule) else { return };
        if now - last_cycle > OUTAGE_MAX_MS {
            return;
        }
        let hold = status.rule.for_ms;
        let back = (now - last_cycle).min(0);
        for alert in remembered {
            let mut restored = alert.into_alert();
            restored.shift(back);
            if restored.state == AlertState::Pending {
                restored.active_at = resumed(hold, restored.active_at, last_cycle.min(now), now);
            }
            status.active.insert(restored.labels.canonical().to_vec(), restored);
        }
    }

    /// Makes the first evaluation restore the start of alerts from their series, since no state was stored.
    pub fn adopt(&mut self) {
        self.adopts = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(firing: bool, active_at: Millis) -> StoredAlert {
        StoredAlert {
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: Arc::default(),
            value: 1.0,
            firing,
            active_at,
            fired_at: firing.then_some(active_at),
            period: None,
            keep_firing_since: None,
            last_sent_at: None,
        }
    }

    #[test]
    fn what_names_a_period() {
        assert_eq!(remembered(true, 7).into_alert().period, Some(7), "of a state of old, when it fired");
        let own = StoredAlert { period: Some(3), ..remembered(true, 7) }.into_alert();
        assert_eq!((own.state, own.period, own.restored), (AlertState::Firing, Some(3), true));
        assert_eq!(remembered(false, 7).into_alert().period, None);
    }
}
