//! Alerts that outlive a restart.

use std::collections::BTreeMap;

use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Matcher, Millis};

use super::alert::{ActiveAlert, AlertState};
use super::{ElementValue, Engine, Group, NewestSample, Rule, RuleStatus};

/// Longest gap since the last cycle over which state is restored.
pub const OUTAGE_MAX_MS: Millis = 3_600_000;

/// Of rules whose `for` is at least this long, a pending alert waits at least this long after a restart.
pub const GRACE_MS: Millis = 600_000;

/// What is remembered of an alert.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// Its labels, `alertname` included, by which it is found again.
    pub labels: LabelSet,
    /// Its annotations, made by templates already.
    pub annotations: BTreeMap<String, String>,
    /// Its value at the last evaluation that had it; NaN where that was a histogram.
    pub value: f64,
    /// Whether it fired.
    pub firing: bool,
    /// Since when the expression had it.
    pub active_at: Millis,
    /// Since when it fired.
    pub fired_at: Option<Millis>,
    /// What names its firing period; absent: `fired_at` does.
    pub period: Option<Millis>,
    /// First evaluation that missed it while it was kept firing.
    pub keep_firing_since: Option<Millis>,
    /// When it was sent last.
    pub last_sent_at: Option<Millis>,
}

impl RuleStatus {
    /// Gives what is to be remembered of its alerts: of those that are pending or fire.
    pub fn remembered(&self) -> Vec<Remembered> {
        let live = self.alerts().filter(|a| a.state != AlertState::Inactive);
        live.map(|alert| Remembered {
            labels: alert.labels.clone(),
            annotations: alert.annotations.clone(),
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

impl Remembered {
    /// Makes the alert that it was.
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
    /// Restores alerts of a rule that was evaluated last at `last_cycle`. A gap that is too long restores nothing.
    ///
    /// Firing alerts go on as they were. Pending ones of a `for` below ten minutes keep their time; of longer ones the time
    /// down does not count, and at least ten minutes are left, as in Prometheus.
    pub fn restore(&mut self, rule: usize, remembered: Vec<Remembered>, last_cycle: Millis, now: Millis) {
        let Some(status) = self.rules.get_mut(rule) else { return };
        if now - last_cycle > OUTAGE_MAX_MS {
            return;
        }
        let hold = status.rule.for_ms;
        for alert in remembered {
            let active_at =
                if alert.firing { alert.active_at } else { resumed(hold, alert.active_at, last_cycle, now) };
            let restored = ActiveAlert { active_at, ..alert.into_alert() };
            status.active.insert(restored.labels.canonical().to_vec(), restored);
        }
    }
}

/// Says since when a pending alert counts as active after a gap.
fn resumed(hold: Millis, active_at: Millis, last_cycle: Millis, now: Millis) -> Millis {
    let remaining = hold - (last_cycle - active_at);
    if hold < GRACE_MS || remaining <= 0 {
        active_at
    } else if remaining < GRACE_MS {
        now + GRACE_MS - hold
    } else {
        active_at + (now - last_cycle)
    }
}

/// What series say of the alerts that a rule had before anything was kept of it: since when each was active, and when that
/// was written last. By the labels of the alert.
#[derive(Debug, Default)]
pub(super) struct Before(BTreeMap<Vec<u8>, (Millis, Millis)>);

impl Before {
    /// Reads the newest `ALERTS_FOR_STATE` before an evaluation at `at`, whoever wrote it. What cannot be read says nothing.
    pub(super) fn read(rule: &Rule, number: usize, (at, offset_ms): (Millis, Millis), engine: &dyn Engine) -> Self {
        let matchers = [Matcher::equal(METRIC_NAME, "ALERTS_FOR_STATE"), Matcher::equal("alertname", &rule.name)];
        let until = at - offset_ms - 1;
        let found = engine.newest(number, &matchers, (until - OUTAGE_MAX_MS, until)).unwrap_or_default();
        let known = |(labels, written, since): NewestSample| {
            let own = LabelSet::from_pairs(labels.iter().filter(|(name, _)| *name != METRIC_NAME));
            let (last, since) = (written + offset_ms, (since * 1000.0) as Millis);
            (0 < since && since <= last).then(|| (own.canonical().to_vec(), (since, last)))
        };
        Self(found.into_iter().filter_map(known).collect())
    }

    /// Lets an alert that begins go on as it was.
    pub(super) fn resume(&self, key: &[u8], alert: &mut ActiveAlert, hold: Millis) {
        let Some(&(since, last)) = self.0.get(key) else { return };
        if last - since >= hold {
            let fired_at = Some(since + hold);
            (alert.state, alert.active_at) = (AlertState::Firing, since);
            (alert.fired_at, alert.period) = (fired_at, fired_at);
        } else {
            alert.active_at = resumed(hold, since, last, alert.active_at);
        }
    }
}

impl Group {
    /// Lets the first evaluation read since when alerts were active out of their series: nothing was kept of them.
    pub fn adopt(&mut self) {
        self.adopts = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Millis = 60_000;

    /// In minutes: `for`, since when it was active, the last cycle before the gap, the first one after it.
    #[test]
    fn pending_alerts_after_a_gap() {
        for (hold, active_at, last, now, expected) in [
            // Below ten minutes time goes on as if nothing had been.
            (9, 0, 5, 40, 0),
            // What was left is left.
            (30, 0, 10, 40, 30),
            (30, 0, 10, 10, 0),
            (30, 0, 20, 50, 30),
            // At least ten minutes are left.
            (30, 0, 21, 50, 30),
            (30, 0, 25, 40, 20),
            (10, 0, 4, 20, 20),
            // Its time had come.
            (30, 0, 30, 40, 0),
            (30, 5, 36, 40, 5),
        ] {
            let got = resumed(hold * MINUTE, active_at * MINUTE, last * MINUTE, now * MINUTE);
            assert_eq!(got, expected * MINUTE, "{hold} {active_at} {last} {now}");
        }
    }

    fn remembered(firing: bool, active_at: Millis) -> Remembered {
        Remembered {
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: BTreeMap::new(),
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
    fn alerts_that_go_on_by_their_series() {
        let fresh = remembered(false, 40 * MINUTE).into_alert();
        let key = fresh.labels.canonical().to_vec();
        let resumed = |since: Millis, last: Millis, hold: Millis| {
            let mut alert = fresh.clone();
            Before(BTreeMap::from([(key.clone(), (since * MINUTE, last * MINUTE))])).resume(
                &key,
                &mut alert,
                hold * MINUTE,
            );
            (
                alert.state,
                alert.active_at / MINUTE,
                alert.fired_at.map(|at| at / MINUTE),
                alert.period.map(|at| at / MINUTE),
            )
        };
        assert_eq!(resumed(0, 30, 10), (AlertState::Firing, 0, Some(10), Some(10)));
        assert_eq!(resumed(5, 35, 30), (AlertState::Firing, 5, Some(35), Some(35)));
        assert_eq!(resumed(5, 6, 0), (AlertState::Firing, 5, Some(5), Some(5)));
        assert_eq!(resumed(0, 30, 31), (AlertState::Pending, 19, None, None));
        assert_eq!(resumed(0, 4, 5), (AlertState::Pending, 0, None, None));
        let mut other = fresh.clone();
        Before::default().resume(&key, &mut other, 0);
        assert_eq!(other, fresh);
    }

    #[test]
    fn what_names_a_period() {
        assert_eq!(remembered(true, 7).into_alert().period, Some(7), "of a state of old, when it fired");
        let own = Remembered { period: Some(3), ..remembered(true, 7) }.into_alert();
        assert_eq!((own.state, own.period, own.restored), (AlertState::Firing, Some(3), true));
        assert_eq!(remembered(false, 7).into_alert().period, None);
    }
}
