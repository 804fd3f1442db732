//! A group under evaluation: its rules with their alerts, what they wrote last, and what is sent.

mod at_once;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quiver_types::{LabelSet, Millis, stale_nan};

use super::alert::{ActiveAlert, AlertState};
use super::before::Before;
use super::engine::{ElementValue, Engine, Written};
use super::evaluate::{Evaluation, Setting};
use super::model::{Rule, RuleGroup, RuleKind};

pub use at_once::Cycle;

/// Health of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Not evaluated yet.
    #[default]
    Unknown,
    /// The last evaluation went well.
    Ok,
    /// It did not.
    Err(String),
}

/// A rule with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleStatus {
    /// The rule as it was read.
    pub rule: Rule,
    /// Whether its last evaluation went well.
    pub health: Health,
    /// When it was evaluated last.
    pub last_evaluation: Option<Millis>,
    /// Samples of that evaluation.
    pub samples: usize,
    /// How long that evaluation took.
    pub evaluation_time: Duration,
    /// Bytes that it read, where they are counted.
    pub scanned_bytes: Option<u64>,
    /// Since when every evaluation has failed.
    pub failing_since: Option<Millis>,
    /// Templates that failed in it.
    pub warnings: Vec<String>,
    pub(super) active: BTreeMap<Vec<u8>, ActiveAlert>,
    /// Series of the last evaluation, which end when they do not come again.
    written: BTreeMap<Vec<u8>, LabelSet>,
}

/// An alert that goes to the router.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    /// Place of the rule in its group, from 0.
    pub rule: usize,
    /// The alert as it is after the evaluation that sends it.
    pub alert: ActiveAlert,
}

impl RuleStatus {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            health: Health::Unknown,
            last_evaluation: None,
            samples: 0,
            evaluation_time: Duration::ZERO,
            scanned_bytes: None,
            failing_since: None,
            warnings: Vec::new(),
            active: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    /// Walks its alerts, those that ended lately included.
    pub fn alerts(&self) -> impl Iterator<Item = &ActiveAlert> {
        self.active.values()
    }

    /// Finds an alert by its labels.
    pub fn alert(&self, labels: &LabelSet) -> Option<&ActiveAlert> {
        self.active.get(labels.canonical())
    }

    /// Gives its state: that of its most urgent alert.
    pub fn state(&self) -> AlertState {
        self.active.values().map(|a| a.state).max().unwrap_or(AlertState::Inactive)
    }

    /// Says what must be equal for alerts to outlive an edit of the rules: name, expression, language, labels.
    pub fn identity(&self) -> (&str, &str, &str, &BTreeMap<String, String>) {
        (&self.rule.name, &self.rule.expr, self.rule.language.as_str(), &self.rule.labels)
    }
}

/// A group that is evaluated from time to time.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The group as it was read from a file or the stored configuration.
    pub model: RuleGroup,
    /// Time from one evaluation to the next.
    pub interval_ms: Millis,
    /// Rules with their states.
    pub rules: Vec<RuleStatus>,
    /// Series of rules that are gone: they are ended at the next evaluation.
    orphans: Vec<LabelSet>,
    pub(super) evaluations: u64,
    /// Which rules wait for which, once it was asked for.
    waits: Option<Arc<[u64]>>,
    /// Whether the first evaluation looks for the alerts of before among series.
    pub(super) adopts: bool,
}

/// What all evaluations of one cycle have in common.
#[derive(Debug)]
struct Turn {
    at: Millis,
    offset_ms: Millis,
    limit: usize,
    interval_ms: Millis,
    group_id: u64,
    is_first: bool,
    adopts: bool,
}

impl Group {
    /// Makes a group; `default_interval_ms` counts where it has none.
    pub fn new(model: RuleGroup, default_interval_ms: Millis) -> Self {
        let interval_ms = model.interval_ms.unwrap_or(default_interval_ms);
        let rules = model.rules.iter().cloned().map(RuleStatus::new).collect();
        Self { model, interval_ms, rules, orphans: Vec::new(), evaluations: 0, waits: None, adopts: false }
    }

    /// Takes over the alerts of a former version: those of rules of equal identity, the n-th of the n-th of such. Gives
    /// the rules that are gone, each with its place in the former version.
    pub fn take_over(&mut self, former: Self) -> Vec<(usize, RuleStatus)> {
        let mut gone: Vec<(usize, RuleStatus)> = former.rules.into_iter().enumerate().collect();
        for status in &mut self.rules {
            let Some(at) = gone.iter().position(|(_, f)| f.identity() == status.identity()) else { continue };
            let (_, old) = gone.remove(at);
            (status.active, status.written) = (old.active, old.written);
            (status.health, status.last_evaluation, status.samples) = (old.health, old.last_evaluation, old.samples);
            (status.evaluation_time, status.scanned_bytes) = (old.evaluation_time, old.scanned_bytes);
            status.failing_since = old.failing_since;
        }
        self.orphans = former.orphans;
        self.orphans.extend(gone.iter().flat_map(|(_, f)| f.written.values().cloned()));
        (self.evaluations, self.adopts) = (former.evaluations, former.adopts);
        gone
    }

    /// Says when an evaluation is due at or before a time, by the group's phase within its interval.
    pub fn due_at(&self, now: Millis) -> Millis {
        let interval = self.interval_ms.max(1);
        let phase = if let Some(offset) = self.model.eval_offset_ms {
            offset.rem_euclid(interval)
        } else {
            (self.id() % interval.unsigned_abs()) as Millis
        };
        now - (now - phase).rem_euclid(interval)
    }

    /// Gives a number of its name.
    fn id(&self) -> u64 {
        let name = format!("{}\u{0}{}", self.model.namespace.as_deref().unwrap_or_default(), self.model.name);
        crate::labels::fnv64(name.as_bytes())
    }

    /// Evaluates all rules in order; what each writes is there for those behind it.
    pub fn evaluate(&mut self, at: Millis, setting: &Setting, engine: &dyn Engine) {
        let turn = self.turn(at);
        for (number, status) in self.rules.iter_mut().enumerate() {
            status.take_turn(number, &turn, setting, engine);
        }
        self.end_cycle(&turn, engine);
    }

    fn turn(&self, at: Millis) -> Turn {
        let offset_ms = self.model.query_offset_ms.unwrap_or(0);
        let is_first = self.evaluations == 0;
        let (limit, interval_ms, group_id) = (self.model.limit, self.interval_ms, self.id());
        Turn { at, offset_ms, limit, interval_ms, group_id, is_first, adopts: is_first && self.adopts }
    }

    fn end_cycle(&mut self, turn: &Turn, engine: &dyn Engine) {
        self.evaluations += 1;
        // What an edited rule writes now goes on: a mark at the same time would hide it.
        let goes_on = |labels: &LabelSet| self.rules.iter().any(|r| r.written.contains_key(labels.canonical()));
        let orphans = self.orphans.iter().filter(|labels| !goes_on(labels));
        let ended: Vec<Written> = orphans.map(|labels| ended(labels.clone(), turn.at - turn.offset_ms)).collect();
        if ended.is_empty() || engine.write(&ended).is_ok() {
            self.orphans.clear();
        }
    }

    /// Says whether a rule that is not evaluated any more left alerts or series.
    pub fn has_left(&self) -> bool {
        let left = |r: &RuleStatus| !r.written.is_empty() || r.alerts().any(|a| a.state != AlertState::Inactive);
        self.rules.iter().any(|status| !status.rule.enabled && left(status))
    }

    /// Ends what rules left that are not evaluated any more, without a cycle of the others.
    pub fn settle(&mut self, at: Millis, engine: &dyn Engine) {
        let offset_ms = self.model.query_offset_ms.unwrap_or(0);
        self.rules.iter_mut().filter(|r| !r.rule.enabled).for_each(|r| r.end(at, offset_ms, engine));
    }

    /// Gives the alerts that go to the router now, and marks them as sent. Alerts of a rule that fails are sent for
    /// `error_hold_ms` more, then no longer.
    pub fn send(&mut self, now: Millis, resend_delay_ms: Millis, error_hold_ms: Millis) -> Vec<Sending> {
        let validity = 4 * self.interval_ms.max(resend_delay_ms);
        let mut out = Vec::new();
        for (i, status) in self.rules.iter_mut().enumerate() {
            // What an evaluation that failed would say is not known: nothing ends because of an error, for a while.
            if status.failing_since.is_some_and(|since| now - since > error_hold_ms) {
                continue;
            }
            for alert in status.active.values_mut().filter(|a| a.needs_sending(now, resend_delay_ms)) {
                alert.last_sent_at = Some(now);
                alert.valid_until = Some(now.saturating_add(validity));
                out.push(Sending { rule: i, alert: alert.clone() });
            }
        }
        out
    }
}

impl Group {
    /// Moves what is known of times by the leap of a clock, so that it neither lets alerts fire nor forgets them.
    pub fn shift(&mut self, by_ms: Millis) {
        for alert in self.rules.iter_mut().flat_map(|status| status.active.values_mut()) {
            alert.active_at += by_ms;
            let times = [
                &mut alert.fired_at,
                &mut alert.resolved_at,
                &mut alert.keep_firing_since,
                &mut alert.last_sent_at,
                &mut alert.valid_until,
            ];
            times.into_iter().flatten().for_each(|time| *time += by_ms);
        }
    }
}

fn ended(labels: LabelSet, ts: Millis) -> Written {
    Written { labels, ts, value: ElementValue::Float(stale_nan()) }
}

impl RuleStatus {
    /// Ends what a rule left that is not evaluated any more.
    fn end(&mut self, at: Millis, offset_ms: Millis, engine: &dyn Engine) {
        self.active.retain(|_, alert| alert.state != AlertState::Pending);
        for alert in self.active.values_mut().filter(|a| a.state == AlertState::Firing) {
            (alert.state, alert.resolved_at) = (AlertState::Inactive, Some(at));
        }
        let gone: Vec<Written> = self.written.values().map(|labels| ended(labels.clone(), at - offset_ms)).collect();
        if !gone.is_empty() && engine.write(&gone).is_ok() {
            self.written.clear();
        }
    }

    /// Evaluates the rule, or ends what it left where it is not evaluated any more.
    fn take_turn(&mut self, number: usize, turn: &Turn, setting: &Setting, engine: &dyn Engine) {
        if !self.rule.enabled {
            self.end(turn.at, turn.offset_ms, engine);
            return;
        }
        let began = engine.elapsed();
        let outcome = self.evaluate(number, turn, setting, engine);
        self.evaluation_time = engine.elapsed().saturating_sub(began);
        self.scanned_bytes = engine.scanned_bytes(number);
        self.last_evaluation = Some(turn.at);
        self.health = match outcome {
            Ok(samples) => {
                self.samples = samples;
                self.failing_since = None;
                Health::Ok
            }
            Err(e) => {
                self.failing_since.get_or_insert(turn.at);
                Health::Err(e)
            }
        };
    }

    fn evaluate(
        &mut self,
        number: usize,
        turn: &Turn,
        setting: &Setting,
        engine: &dyn Engine,
    ) -> Result<usize, String> {
        let &Turn { at, offset_ms, limit, interval_ms, group_id, is_first, adopts } = turn;
        let rule = &self.rule;
        let evaluation =
            Evaluation { rule, number, setting, engine, at, offset_ms, limit, interval_ms, group_id, is_first };
        let ts = at - offset_ms;
        let elements = engine.query(number, self.rule.language, &self.rule.expr, ts)?;
        let warnings = RefCell::new(Vec::new());
        let written = match self.rule.kind {
            RuleKind::Alert => {
                let looks = adopts && !elements.is_empty();
                let before =
                    if looks { Before::read(&self.rule, number, (at, offset_ms), engine) } else { Before::default() };
                evaluation.alerts(&elements, &before, &mut self.active, &warnings)
            }
            RuleKind::Record => evaluation.series(elements),
        };
        self.warnings = warnings.into_inner();
        let mut written = written?;
        let samples = written.len();
        let now: BTreeMap<Vec<u8>, LabelSet> =
            written.iter().map(|w| (w.labels.canonical().to_vec(), w.labels.clone())).collect();
        let gone = self.written.iter().filter(|(key, _)| !now.contains_key(*key));
        written.extend(gone.map(|(_, labels)| ended(labels.clone(), ts)));
        if !written.is_empty() {
            engine.write(&written)?;
        }
        self.written = now;
        Ok(samples)
    }
}

#[cfg(test)]
mod tests;
