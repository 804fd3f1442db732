//! A group under evaluation: its rules with their alerts, the series written last, and the alerts to send.

mod parallel;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use quiver_types::{LabelSet, Millis, stale_nan};

use super::alert::{ActiveAlert, AlertState};
use super::engine::{ElementValue, Engine, RuleSample};
use super::evaluation::{Evaluation, EvaluationSettings, until};
use super::memory::MemoryHandle;
use super::model::{Rule, RuleGroup, RuleKind};
use super::resumption::FormerAlerts;

pub use parallel::Cycle;

/// Health of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Not evaluated yet.
    #[default]
    Unknown,
    /// The last evaluation succeeded.
    Ok,
    /// It failed, with this error.
    Err(String),
}

/// A rule with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleStatus {
    /// The parsed rule.
    pub rule: Rule,
    /// The result of the last evaluation.
    pub health: Health,
    /// Time of the last evaluation.
    pub last_evaluation: Option<Millis>,
    /// Number of samples in its result.
    pub samples: usize,
    /// Its duration.
    pub evaluation_time: Duration,
    /// Bytes that it read, if they are counted.
    pub scanned_bytes: Option<u64>,
    /// Since when every evaluation has failed.
    pub failing_since: Option<Millis>,
    /// Errors of templates in it.
    pub warnings: Vec<String>,
    pub(super) active: BTreeMap<Vec<u8>, ActiveAlert>,
    /// Series of the last evaluation; those missing in the next one get a stale marker.
    written: BTreeMap<Vec<u8>, LabelSet>,
    /// Memory for all that.
    held: MemoryHandle,
}

/// An alert for the router.
#[derive(Debug, Clone, PartialEq)]
pub struct OutgoingAlert {
    /// Index of the rule in its group.
    pub rule: usize,
    /// The alert after the evaluation.
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
            held: MemoryHandle::default(),
        }
    }

    /// Its alerts, including recently resolved ones.
    pub fn alerts(&self) -> impl Iterator<Item = &ActiveAlert> {
        self.active.values()
    }

    /// Finds an alert by its labels.
    pub fn alert(&self, labels: &LabelSet) -> Option<&ActiveAlert> {
        self.active.get(labels.canonical())
    }

    /// Its state: that of its most urgent alert.
    pub fn state(&self) -> AlertState {
        self.active.values().map(|a| a.state).max().unwrap_or(AlertState::Inactive)
    }

    /// What must stay equal for alerts to survive an edit of the rule: name, expression, language, labels.
    pub fn identity(&self) -> (&str, &str, &str, &BTreeMap<String, String>) {
        (&self.rule.name, &self.rule.expr, self.rule.language.as_str(), &self.rule.labels)
    }
}

/// A group that is evaluated periodically.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The group as parsed from a file or the stored configuration.
    pub model: RuleGroup,
    /// Evaluation interval.
    pub interval_ms: Millis,
    /// Rules with their states.
    pub rules: Vec<RuleStatus>,
    /// Series of removed rules, which are ended at the next evaluation.
    orphans: Vec<LabelSet>,
    pub(super) evaluations: u64,
    /// The dependencies between rules, once they were computed.
    waits: Option<Arc<[u64]>>,
    /// Whether the first evaluation restores alerts from their series.
    pub(super) adopts: bool,
}

/// What the evaluations of one cycle have in common.
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
    /// Makes a group; `default_interval_ms` is used if it has no interval.
    pub fn new(model: RuleGroup, default_interval_ms: Millis) -> Self {
        let interval_ms = model.interval_ms.unwrap_or(default_interval_ms);
        let rules = model.rules.iter().cloned().map(RuleStatus::new).collect();
        Self { model, interval_ms, rules, orphans: Vec::new(), evaluations: 0, waits: None, adopts: false }
    }

    /// Takes over the alerts of a former version: by rules of equal identity, and among several of those by their
    /// order. Returns the removed rules with their former indexes.
    pub fn take_over(&mut self, former: Self) -> Vec<(usize, RuleStatus)> {
        let mut waiting: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (at, status) in former.rules.iter().enumerate() {
            waiting.entry(status.identity()).or_default().push_back(at);
        }
        let found = self.rules.iter().map(|status| waiting.get_mut(&status.identity())?.pop_front());
        let found: Vec<Option<usize>> = found.collect();
        let mut former_rules: Vec<Option<RuleStatus>> = former.rules.into_iter().map(Some).collect();
        for (status, at) in self.rules.iter_mut().zip(found) {
            let Some(old) = at.and_then(|at| former_rules[at].take()) else { continue };
            (status.active, status.written, status.held) = (old.active, old.written, old.held);
            (status.health, status.last_evaluation, status.samples) = (old.health, old.last_evaluation, old.samples);
            (status.evaluation_time, status.scanned_bytes) = (old.evaluation_time, old.scanned_bytes);
            status.failing_since = old.failing_since;
        }
        let gone = former_rules.into_iter().enumerate().filter_map(|(at, status)| Some((at, status?)));
        let gone: Vec<(usize, RuleStatus)> = gone.collect();
        self.orphans = former.orphans;
        self.orphans.extend(gone.iter().flat_map(|(_, f)| f.written.values().cloned()));
        (self.evaluations, self.adopts) = (former.evaluations, former.adopts);
        gone
    }

    /// The last time at or before `now` at which an evaluation is due, by the group's offset within its interval.
    pub fn due_at(&self, now: Millis) -> Millis {
        let interval = self.interval_ms.max(1);
        let phase = if let Some(offset) = self.model.eval_offset_ms {
            offset.rem_euclid(interval)
        } else {
            (self.id() % interval.unsigned_abs()) as Millis
        };
        now - (now - phase).rem_euclid(interval)
    }

    /// A number derived from its name.
    fn id(&self) -> u64 {
        let name = format!("{}\u{0}{}", self.model.namespace.as_deref().unwrap_or_default(), self.model.name);
        crate::labels::fnv64(name.as_bytes())
    }

    /// Evaluates all rules in order; each sees what earlier ones wrote.
    pub fn evaluate(&mut self, at: Millis, setting: &EvaluationSettings, engine: &dyn Engine) {
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
        // A series that another rule writes now continues: a stale marker at the same time would hide its sample.
        let goes_on = |labels: &LabelSet| self.rules.iter().any(|r| r.written.contains_key(labels.canonical()));
        let orphans = self.orphans.iter().filter(|labels| !goes_on(labels));
        let ended: Vec<RuleSample> = orphans.map(|labels| ended(labels.clone(), turn.at - turn.offset_ms)).collect();
        if ended.is_empty() || engine.write(&ended).is_ok() {
            self.orphans.clear();
        }
    }

    /// Whether a rule that is no longer evaluated left alerts or series.
    pub fn has_left(&self) -> bool {
        let left = |r: &RuleStatus| !r.written.is_empty() || r.alerts().any(|a| a.state != AlertState::Inactive);
        self.rules.iter().any(|status| !status.rule.enabled && left(status))
    }

    /// Ends alerts and series of rules that are no longer evaluated, without evaluating others.
    pub fn end_disabled_rules(&mut self, at: Millis, engine: &dyn Engine) {
        let offset_ms = self.model.query_offset_ms.unwrap_or(0);
        self.rules.iter_mut().filter(|r| !r.rule.enabled).for_each(|r| r.end(at, offset_ms, engine));
    }

    /// Returns the alerts to send now, and marks them as sent. Alerts of a failing rule are sent for `error_hold_ms`,
    /// then no longer.
    pub fn send(&mut self, now: Millis, resend_delay_ms: Millis, error_hold_ms: Millis) -> Vec<OutgoingAlert> {
        let validity = 4 * self.interval_ms.max(resend_delay_ms);
        let mut out = Vec::new();
        for (i, status) in self.rules.iter_mut().enumerate() {
            // The result of a failed evaluation is unknown, so for a while nothing is resolved because of an error.
            if status.failing_since.is_some_and(|since| now - since > error_hold_ms) {
                continue;
            }
            for alert in status.active.values_mut().filter(|a| a.needs_sending(now, resend_delay_ms)) {
                alert.last_sent_at = Some(now);
                alert.valid_until = Some(now.saturating_add(validity));
                out.push(OutgoingAlert { rule: i, alert: alert.clone() });
            }
        }
        out
    }
}

impl Group {
    /// Shifts all times by a clock jump, so that it neither makes alerts fire nor resolves them.
    pub fn shift(&mut self, by_ms: Millis) {
        for status in &mut self.rules {
            status.active.values_mut().for_each(|alert| alert.shift(by_ms));
            status.failing_since = status.failing_since.map(|since| since.saturating_add(by_ms));
        }
    }
}

fn ended(labels: LabelSet, ts: Millis) -> RuleSample {
    RuleSample { labels, ts, value: ElementValue::Float(stale_nan()) }
}

impl RuleStatus {
    /// Ends alerts and series of a rule that is no longer evaluated.
    fn end(&mut self, at: Millis, offset_ms: Millis, engine: &dyn Engine) {
        self.active.retain(|_, alert| alert.state != AlertState::Pending);
        for alert in self.active.values_mut().filter(|a| a.state == AlertState::Firing) {
            (alert.state, alert.resolved_at) = (AlertState::Inactive, Some(at));
        }
        let gone: Vec<RuleSample> = self.written.values().map(|labels| ended(labels.clone(), at - offset_ms)).collect();
        if !gone.is_empty() && engine.write(&gone).is_ok() {
            self.written.clear();
        }
    }

    /// Evaluates the rule; or, if it is no longer evaluated, ends its alerts and series.
    fn take_turn(&mut self, number: usize, turn: &Turn, setting: &EvaluationSettings, engine: &dyn Engine) {
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
        setting: &EvaluationSettings,
        engine: &dyn Engine,
    ) -> Result<usize, String> {
        let &Turn { at, offset_ms, limit, interval_ms, group_id, is_first, adopts } = turn;
        let (rule, ts) = (&self.rule, at - offset_ms);
        let elements = engine.query(number, rule.language, &rule.expr, ts)?;
        let until = until(engine, interval_ms);
        let evaluation =
            Evaluation { rule, number, setting, engine, at, offset_ms, limit, interval_ms, group_id, is_first, until };
        let warnings = RefCell::new(Vec::new());
        let mut share = setting.room.instead_of(&self.held);
        let written = match self.rule.kind {
            RuleKind::Alert => {
                let looks = adopts && !elements.is_empty();
                let before = if looks {
                    FormerAlerts::read(&self.rule, number, (at, offset_ms), engine)
                } else {
                    FormerAlerts::default()
                };
                evaluation.alerts(&elements, &before, &mut self.active, (&mut share, &warnings))
            }
            RuleKind::Record => evaluation.series(elements, &mut share),
        };
        self.warnings = warnings.into_inner();
        if written.is_ok() {
            self.held = share.into();
        } else if self.active.is_empty() {
            self.held = MemoryHandle::default();
        }
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
