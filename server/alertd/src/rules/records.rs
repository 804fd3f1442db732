//! History records of an evaluation: state changes of alerts, and the outcome of each rule.

use std::time::Duration;

use quiver_alerting::rules::{
    ActiveAlert, AlertState, ElementValue, EvaluationSettings, Group, Health, Rule, RuleStatus, StoredAlert,
};
use quiver_types::Millis;

use super::alert::to_router;
use super::rule_state::RemovedRule;
use crate::history::{Evaluation, Event, Record, RuleRef};

/// What names a group in records.
pub(super) struct Names<'a> {
    pub(super) file: &'a str,
    pub(super) ids: &'a [String],
    pub(super) setting: &'a EvaluationSettings,
    pub(super) external_url: &'a str,
}

impl Names<'_> {
    fn rule(&self, group: &Group, n: usize, rule: &Rule) -> RuleRef {
        RuleRef {
            id: self.ids.get(n).cloned().unwrap_or_default(),
            name: rule.name.clone(),
            namespace: self.file.to_owned(),
            group: group.model.name.clone(),
        }
    }

    fn event(&self, alert: &ActiveAlert, expr: &str, of: RuleRef, (at, from, to): Change) -> Event {
        let sent = to_router(alert, expr, self.setting, self.external_url, 0);
        Event {
            at,
            labels: sent.labels,
            annotations: sent.annotations.iter().map(|(name, text)| (name.clone(), text.clone())).collect(),
            from: from.as_str(),
            to,
            starts_at: alert.period.or(alert.fired_at).unwrap_or(alert.active_at),
            // Whatever comes after it, a firing period ends. Alerts that a rule dropped know no time of their own.
            ends_at: (from == AlertState::Firing).then(|| alert.resolved_at.unwrap_or(at)),
            value: match &alert.value {
                ElementValue::Float(value) => Some(*value),
                ElementValue::Histogram(..) => None,
            },
            source: "rule",
            rule: of,
            generator_url: sent.generator_url.to_string(),
        }
    }

    /// Gives what changed between two states of a group.
    pub(super) fn events(&self, before: &Group, after: &Group, at: Millis) -> Vec<Record> {
        let mut out = Vec::new();
        for (n, (old, new)) in before.rules.iter().zip(&after.rules).enumerate() {
            for (alert, from, to) in changes(old, new) {
                let of = self.rule(after, n, &new.rule);
                out.push(Record::Event(self.event(alert, &new.rule.expr, of, (at, from, to))));
            }
        }
        out
    }

    /// Ends the alerts of rules that are gone: deleted, or of another identity than before. The places are those that the
    /// ids are for.
    pub(super) fn gone(&self, group: &Group, rules: &[(usize, RuleStatus)], at: Millis) -> Vec<Record> {
        let ends = rules.iter().flat_map(|(n, status)| {
            let live = status.alerts().filter(|alert| alert.state != AlertState::Inactive);
            live.map(move |alert| {
                let of = self.rule(group, *n, &status.rule);
                Record::Event(self.event(alert, &status.rule.expr, of, (at, alert.state, word_of_end(alert.state))))
            })
        });
        ends.collect()
    }

    /// Ends the alerts of a rule that was there before the start; `id` is that of the rule in its place, if one is.
    pub(super) fn gone_before(&self, gone: RemovedRule, id: String, at: Millis) -> Vec<Record> {
        let of = RuleRef { id, name: gone.name, namespace: gone.file, group: gone.group };
        let end = |alert: StoredAlert| {
            let mut alert = alert.into_alert();
            // Nobody has judged it since.
            alert.resolved_at = Some(gone.last.max(alert.active_at).min(at));
            let change = (at, alert.state, word_of_end(alert.state));
            Record::Event(self.event(&alert, &gone.expr, of.clone(), change))
        };
        gone.alerts.into_iter().map(end).collect()
    }

    /// Gives how the rules went, and the cycles that were left out before it.
    pub(super) fn evaluations(&self, group: &Group, (at, started_at): (Millis, Millis), missed: u64) -> Vec<Record> {
        let mut out = Vec::new();
        let running = group.rules.iter().enumerate().filter(|(_, status)| status.rule.enabled);
        for (n, status) in running {
            let rule = &status.rule;
            let labels: Vec<_> = rule.labels.iter().map(|(n, v)| (n.clone(), v.clone())).collect();
            let made = |scheduled_at: Millis, outcome: &'static str| Evaluation {
                scheduled_at,
                started_at,
                rule: self.rule(group, n, rule),
                labels: labels.clone(),
                language: rule.language.as_str(),
                outcome,
                error: String::new(),
                took: Duration::ZERO,
                results: 0,
                scanned_bytes: None,
            };
            for back in (1..=missed.min(MISSED_MAX)).rev() {
                let due = at.saturating_sub(group.interval_ms.saturating_mul(back as Millis));
                out.push(Record::Evaluation(made(due, "missed")));
            }
            let done = match &status.health {
                Health::Err(error) => Evaluation { error: error.clone(), ..made(at, "error") },
                _ => Evaluation { results: status.samples, ..made(at, "ok") },
            };
            let (took, scanned_bytes) = (status.evaluation_time, status.scanned_bytes);
            out.push(Record::Evaluation(Evaluation { took, scanned_bytes, ..done }));
        }
        out
    }
}

/// When an alert changed, the state before, and the word for the one after.
type Change = (Millis, AlertState, &'static str);

/// Most cycles left out in a row that have a record each.
const MISSED_MAX: u64 = 100;

/// Pairs alerts of two states of a rule: each that changed, with the state before and the word for the one after.
fn changes<'a>(
    old: &'a RuleStatus,
    new: &'a RuleStatus,
) -> impl Iterator<Item = (&'a ActiveAlert, AlertState, &'static str)> {
    let came = new.alerts().filter_map(|alert| {
        let before = old.alert(&alert.labels);
        let from = before.map_or(AlertState::Inactive, |b| b.state);
        let to = match alert.state {
            AlertState::Inactive => "resolved",
            state => state.as_str(),
        };
        // A raised `for`: the period that ended is the one before.
        let shown = if from == AlertState::Firing && alert.fired_at.is_none() { before? } else { alert };
        (from != alert.state).then_some((shown, from, to))
    });
    let gone = old.alerts().filter(|alert| alert.state != AlertState::Inactive && new.alert(&alert.labels).is_none());
    came.chain(gone.map(|alert| (alert, alert.state, word_of_end(alert.state))))
}

/// Gives the word for the state of an alert that is no more.
fn word_of_end(state: AlertState) -> &'static str {
    if state == AlertState::Firing { "resolved" } else { "inactive" }
}
