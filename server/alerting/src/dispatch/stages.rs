//! Filters the alerts of a group before notification: inhibition, time intervals, silences.

use std::collections::BTreeMap;

use super::{Alert, Flush, SilenceIndex};
use crate::inhibition::Inhibitor;
use crate::intervals::TimeInterval;
use crate::routes::RouteOptions;

/// Why an alert is muted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MuteReason {
    /// By an alert with this fingerprint.
    Inhibited(u64),
    /// By a silence.
    Silenced,
}

/// The alerts of a group after filtering.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilteredAlerts {
    /// Alerts that are not muted.
    pub alerts: Vec<Alert>,
    /// Muted alerts with the reason.
    pub muted: Vec<(Alert, MuteReason)>,
    /// Time intervals that currently mute the whole route.
    pub muted_by: Vec<String>,
}

/// Everything that can mute alerts.
#[derive(Debug)]
pub struct AlertMuter<'a> {
    /// Inhibition by firing alerts.
    pub inhibitor: &'a Inhibitor<'a>,
    /// Silences that are active.
    pub silences: &'a SilenceIndex,
    /// Intervals by name.
    pub intervals: &'a BTreeMap<String, Vec<TimeInterval>>,
}

impl AlertMuter<'_> {
    fn holding(&self, names: &[String], now: i64) -> Vec<String> {
        let holds = |name: &&String| self.intervals.get(*name).is_some_and(|list| list.iter().any(|i| i.contains(now)));
        names.iter().filter(holds).cloned().collect()
    }

    /// The intervals that mute a route: its active intervals if none of them contains now, or else the mute intervals
    /// that do.
    pub fn muted_by(&self, options: &RouteOptions, now: i64) -> Vec<String> {
        let active = &options.active_time_intervals;
        if !active.is_empty() && self.holding(active, now).is_empty() {
            return active.clone();
        }
        self.holding(&options.mute_time_intervals, now)
    }

    /// Filters the alerts of a flush.
    pub fn pass(&self, flush: &Flush) -> FilteredAlerts {
        let now = flush.at;
        let mut out = FilteredAlerts { muted_by: self.muted_by(&flush.options, now), ..FilteredAlerts::default() };
        for alert in &flush.alerts {
            let inhibited = self.inhibitor.inhibited_by(&alert.labels).map(MuteReason::Inhibited);
            let muted = inhibited.or_else(|| self.silences.covers(&alert.labels).then_some(MuteReason::Silenced));
            match muted {
                Some(muted) => out.muted.push((alert.clone(), muted)),
                None if out.muted_by.is_empty() => out.alerts.push(alert.clone()),
                None => {}
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_types::LabelSet;

    use super::*;
    use crate::inhibition::InhibitRule;
    use crate::matchers::{Matchers, read};
    use crate::silences::{Silence, Silences};

    fn matchers(text: &str) -> Matchers {
        Matchers::new(read(text).expect(text).matchers)
    }

    /// Alerts with `s=1` inhibit those with `t=1`.
    fn rule() -> InhibitRule {
        InhibitRule { source: matchers("s=1"), target: matchers("t=1"), ..InhibitRule::default() }
    }

    fn flush(alerts: Vec<Alert>) -> Flush {
        Flush {
            group: 1,
            route: 0,
            key: String::new(),
            labels: LabelSet::default(),
            options: RouteOptions::default(),
            alerts,
            at: 50,
        }
    }

    #[test]
    fn muted_for_each_reason() {
        let rules = [rule()];
        let source = LabelSet::from_pairs([("s", "1")]);
        let inhibitor = Inhibitor::new(&rules, [&source]);
        let mut silences = Silences::default();
        silences.load(Silence {
            id: "x".into(),
            matchers: matchers("q=1"),
            starts_at: 0,
            ends_at: 100,
            updated_at: 0,
            ..Silence::default()
        });
        let silences = SilenceIndex::new(&silences.active(50));
        let always = vec![TimeInterval::default()];
        let never = vec![TimeInterval { years: Some(Vec::new()), ..TimeInterval::default() }];
        let intervals = BTreeMap::from([("always".to_owned(), always), ("never".to_owned(), never)]);
        let muting = AlertMuter { inhibitor: &inhibitor, silences: &silences, intervals: &intervals };
        let mut flush = flush(vec![alert(&[("t", "1")]), alert(&[("q", "1")]), alert(&[("z", "1")])]);
        let passed = muting.pass(&flush);
        assert_eq!((passed.alerts.len(), passed.muted.len()), (1, 2));
        assert_eq!(passed.muted[1].1, MuteReason::Silenced);
        let mut muted_by = |mute: &[&str], active: &[&str]| {
            flush.options.mute_time_intervals = mute.iter().map(|s| (*s).to_owned()).collect();
            flush.options.active_time_intervals = active.iter().map(|s| (*s).to_owned()).collect();
            let passed = muting.pass(&flush);
            assert_eq!(passed.muted_by.is_empty(), !passed.alerts.is_empty());
            passed.muted_by
        };
        assert_eq!(muted_by(&["never", "always"], &[]), ["always"]);
        assert_eq!(muted_by(&[], &["never"]), ["never"]);
        assert_eq!(muted_by(&["never"], &["always", "never"]), [""; 0]);
    }

    fn alert(pairs: &[(&str, &str)]) -> Alert {
        Alert {
            labels: LabelSet::from_pairs(pairs.iter().copied()),
            annotations: Arc::default(),
            starts_at: 0,
            ends_at: 1000,
            is_timeout: false,
            updated_at: 0,
            generator_url: Arc::default(),
        }
    }

    /// An alert that is both inhibited and silenced counts as inhibited; a muted route does not change the reasons of
    /// its alerts.
    #[test]
    fn muted_for_several_reasons() {
        let rules = [rule()];
        let source = LabelSet::from_pairs([("s", "1")]);
        let inhibitor = Inhibitor::new(&rules, [&source]);
        let mut silences = Silences::default();
        for (id, text, starts_at, ends_at) in
            [("now", "q=1", 0, 100), ("over", "q=1", 0, 50), ("later", "q=1", 51, 100)]
        {
            silences.load(Silence {
                id: id.into(),
                matchers: matchers(text),
                starts_at,
                ends_at,
                ..Silence::default()
            });
        }
        let silences = SilenceIndex::new(&silences.active(50));
        let intervals = BTreeMap::from([("always".to_owned(), vec![TimeInterval::default()])]);
        let muting = AlertMuter { inhibitor: &inhibitor, silences: &silences, intervals: &intervals };
        let mut flush = flush(vec![alert(&[("t", "1"), ("q", "1")]), alert(&[("q", "1")]), alert(&[("z", "1")])]);
        let inhibited = MuteReason::Inhibited(crate::labels::fingerprint(&source));
        let reasons = vec![inhibited, MuteReason::Silenced];
        let mut check = |mute: &[&str], active: &[&str], expected: &[&str]| {
            flush.options.mute_time_intervals = mute.iter().map(|s| (*s).to_owned()).collect();
            flush.options.active_time_intervals = active.iter().map(|s| (*s).to_owned()).collect();
            let passed = muting.pass(&flush);
            assert_eq!(passed.muted_by, expected, "{mute:?} {active:?}");
            assert_eq!(passed.alerts.len(), usize::from(expected.is_empty()), "{mute:?} {active:?}");
            assert_eq!(passed.muted.into_iter().map(|m| m.1).collect::<Vec<_>>(), reasons, "{mute:?} {active:?}");
        };
        check(&[], &[], &[]);
        check(&["always"], &[], &["always"]);
        check(&["always"], &["always"], &["always"]);
        // An unknown interval never applies.
        check(&["gone"], &[], &[]);
        check(&[], &["gone"], &["gone"]);
        check(&["always"], &["gone"], &["gone"]);
        check(&["gone"], &["gone", "always"], &[]);
    }
}
