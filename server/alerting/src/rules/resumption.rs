//! Continues alerts after a gap in evaluation: how long pending alerts have been active, and what their series reveal if
//! no state was stored.

use std::collections::BTreeMap;

use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Matcher, Millis};

use super::alert::{ActiveAlert, AlertState};
use super::engine::{Engine, NewestSample};
use super::model::Rule;

/// Longest gap after which state is restored.
pub const OUTAGE_MAX_MS: Millis = 3_600_000;

/// If `for` is at least this long, a pending alert waits at least this long after a restart.
pub const GRACE_MS: Millis = 600_000;

/// Since when a pending alert counts as active after a gap.
pub(super) fn resumed(hold: Millis, active_at: Millis, last_cycle: Millis, now: Millis) -> Millis {
    let remaining = hold - (last_cycle - active_at);
    if hold < GRACE_MS || remaining <= 0 {
        active_at
    } else if remaining < GRACE_MS {
        now + GRACE_MS - hold
    } else {
        active_at + (now - last_cycle)
    }
}

/// What series tell about the former alerts of a rule: since when each was active, and the time of that sample. Keyed
/// by the labels of the alert.
#[derive(Debug, Default)]
pub(super) struct FormerAlerts(BTreeMap<Vec<u8>, (Millis, Millis)>);

impl FormerAlerts {
    /// Reads the newest `ALERTS_FOR_STATE` before an evaluation at `at`, whoever wrote it. Unreadable values are
    /// ignored.
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

    /// Continues a former alert instead of beginning a new one.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rules::ElementValue;

    const MINUTE: Millis = 60_000;

    /// In minutes: `for`, active since, the last cycle before the gap, the first one after it, and the expected
    /// result.
    #[test]
    fn pending_alerts_after_a_gap() {
        for (hold, active_at, last, now, expected) in [
            // Below ten minutes the gap counts as if nothing had happened.
            (9, 0, 5, 40, 0),
            // The remaining time is the same as before.
            (30, 0, 10, 40, 30),
            (30, 0, 10, 10, 0),
            (30, 0, 20, 50, 30),
            // At least ten minutes remain.
            (30, 0, 21, 50, 30),
            (30, 0, 25, 40, 20),
            (10, 0, 4, 20, 20),
            // Its time was over.
            (30, 0, 30, 40, 0),
            (30, 5, 36, 40, 5),
        ] {
            let got = resumed(hold * MINUTE, active_at * MINUTE, last * MINUTE, now * MINUTE);
            assert_eq!(got, expected * MINUTE, "{hold} {active_at} {last} {now}");
        }
    }

    #[test]
    fn alerts_that_go_on_by_their_series() {
        let fresh = ActiveAlert {
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: Arc::default(),
            value: ElementValue::Float(1.0),
            state: AlertState::Pending,
            active_at: 40 * MINUTE,
            fired_at: None,
            period: None,
            resolved_at: None,
            keep_firing_since: None,
            last_sent_at: None,
            valid_until: None,
            restored: true,
        };
        let key = fresh.labels.canonical().to_vec();
        let resumed = |since: Millis, last: Millis, hold: Millis| {
            let mut alert = fresh.clone();
            FormerAlerts(BTreeMap::from([(key.clone(), (since * MINUTE, last * MINUTE))])).resume(
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
        FormerAlerts::default().resume(&key, &mut other, 0);
        assert_eq!(other, fresh);
    }
}
