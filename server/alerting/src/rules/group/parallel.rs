//! Evaluates a group on several threads: rules that do not depend on each other run in parallel.
//!
//! A rule waits for earlier ones that write what it reads, read what it writes, or may write the same series, so the
//! results equal those of sequential evaluation. Rules further apart than a window always wait for each other, which
//! limits the state of a large group and the cost of finding the next rule.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quiver_types::label::METRIC_NAME;
use quiver_types::{Matcher, Millis};

use super::{Group, RuleStatus, Turn};
use crate::rules::engine::{Engine, Reads};
use crate::rules::evaluation::{EvaluationSettings, SERVICE};
use crate::rules::model::{Rule, RuleKind};

/// How many rules after the first unfinished one are considered.
const WINDOW: usize = 64;

/// Series that alerting rules write.
const OF_ALERTS: [&str; 2] = ["ALERTS", "ALERTS_FOR_STATE"];

/// What is known about the series that a rule writes.
struct Writes<'a> {
    names: Vec<&'a str>,
    /// Labels with the same value in all of them.
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Writes<'a> {
    fn of(rule: &'a Rule) -> Self {
        let is_alert = rule.kind == RuleKind::Alert;
        let mut labels = BTreeMap::new();
        for (name, value) in &rule.labels {
            let is_open = is_alert && value.contains("{{") || rule.service_yields && name == SERVICE;
            if !is_open {
                labels.insert(name.as_str(), value.as_str());
            }
        }
        if is_alert {
            labels.insert("alertname", rule.name.as_str());
        }
        let names = if is_alert { OF_ALERTS.to_vec() } else { vec![rule.name.as_str()] };
        Self { names, labels }
    }

    fn may_be_read_by(&self, reads: &Reads) -> bool {
        let Reads::Series(selectors) = reads else { return true };
        let fits = |matcher: &Matcher, name: &str| match matcher.name.as_str() {
            METRIC_NAME => matcher.matches(name),
            label => self.labels.get(label).is_none_or(|value| matcher.matches(value)),
        };
        let reads_one =
            |selector: &Vec<Matcher>| self.names.iter().any(|name| selector.iter().all(|matcher| fits(matcher, name)));
        selectors.iter().any(reads_one)
    }

    fn may_be_those_of(&self, other: &Self) -> bool {
        let shared = self.names.iter().any(|name| other.names.contains(name));
        let apart = self.labels.iter().any(|(name, value)| other.labels.get(*name).is_some_and(|v| v != value));
        shared && !apart
    }
}

fn reads_of(rule: &Rule, engine: &dyn Engine) -> Reads {
    let mut texts = rule.labels.values().chain(rule.annotations.values());
    // What the queries of templates read is only known at run time.
    if rule.kind == RuleKind::Alert && texts.any(|text| text.contains("{{") && text.contains("query")) {
        return Reads::Anything;
    }
    engine.reads(rule.language, &rule.expr)
}

/// For each rule a bit mask of the earlier rules in its window that it waits for; the lowest bit is the rule right
/// before it.
fn waits_of(rules: &[RuleStatus], engine: &dyn Engine) -> Arc<[u64]> {
    let reads: Vec<Reads> = rules.iter().map(|status| reads_of(&status.rule, engine)).collect();
    let writes: Vec<Writes<'_>> = rules.iter().map(|status| Writes::of(&status.rule)).collect();
    let waits = |now: usize, before: usize| {
        writes[before].may_be_read_by(&reads[now])
            || writes[now].may_be_read_by(&reads[before])
            || writes[now].may_be_those_of(&writes[before])
    };
    let mut out = Vec::with_capacity(rules.len());
    for now in 0..rules.len() {
        let mut bits = 0_u64;
        for back in 1..=now.min(WINDOW) {
            if waits(now, now - back) {
                bits |= 1_u64 << (back - 1);
            }
        }
        out.push(bits);
    }
    out.into()
}

/// The state of a rule in a cycle.
#[derive(Debug)]
enum Place {
    Open(Box<RuleStatus>),
    Taken,
    Done(Box<RuleStatus>),
    /// Its evaluation panicked.
    Lost,
}

#[derive(Debug)]
struct Progress {
    places: Vec<Place>,
    /// All rules before this index are done.
    first: usize,
    /// Number of rules that no thread has taken.
    open: usize,
}

/// A running cycle. Each thread calls [`Cycle::evaluate_rules`]; after all have returned, [`Cycle::finish`] returns the group.
#[derive(Debug)]
pub struct Cycle {
    /// The group without its rules.
    group: Group,
    turn: Turn,
    waits: Arc<[u64]>,
    progress: Mutex<Progress>,
    /// Signals that a rule is done.
    moved: Condvar,
}

impl Group {
    /// Begins a cycle that several threads work on.
    pub fn begin(mut self, at: Millis, engine: &dyn Engine) -> Cycle {
        let waits = Arc::clone(self.waits.get_or_insert_with(|| waits_of(&self.rules, engine)));
        let turn = self.turn(at);
        let rules = std::mem::take(&mut self.rules);
        let open = rules.len();
        let places = rules.into_iter().map(|status| Place::Open(Box::new(status))).collect();
        let progress = Mutex::new(Progress { places, first: 0, open });
        Cycle { group: self, turn, waits, progress, moved: Condvar::new() }
    }
}

/// A rule taken by a thread. On drop the others are notified that it is done, even if its evaluation panicked.
struct ClaimedRule<'a> {
    cycle: &'a Cycle,
    number: usize,
    status: Option<Box<RuleStatus>>,
}

impl Drop for ClaimedRule<'_> {
    fn drop(&mut self) {
        let mut progress = self.cycle.progress();
        progress.places[self.number] = match self.status.take() {
            Some(status) if !std::thread::panicking() => Place::Done(status),
            _ => Place::Lost,
        };
        let done = |place: &Place| matches!(place, Place::Done(_) | Place::Lost);
        while progress.places.get(progress.first).is_some_and(done) {
            progress.first += 1;
        }
        drop(progress);
        self.cycle.moved.notify_all();
    }
}

impl Cycle {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Code that holds the lock cannot panic.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next rule that waits for no other; blocks if there are only waiting ones. `None`: all are taken.
    fn take(&self) -> Option<ClaimedRule<'_>> {
        let mut progress = self.progress();
        loop {
            if progress.open == 0 {
                return None;
            }
            let (first, end) = (progress.first, progress.places.len());
            let mut window = first..end.min(first + WINDOW + 1);
            if let Some(number) = window.find(|n| self.is_ready(&progress, *n))
                && let Place::Open(status) = std::mem::replace(&mut progress.places[number], Place::Taken)
            {
                progress.open -= 1;
                return Some(ClaimedRule { cycle: self, number, status: Some(status) });
            }
            // The first unfinished rule waits for none, so a thread is working on it.
            progress = self.moved.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_ready(&self, progress: &Progress, number: usize) -> bool {
        let is_done = |n: usize| n < progress.first || matches!(progress.places[n], Place::Done(_) | Place::Lost);
        let waits = self.waits.get(number).copied().unwrap_or(u64::MAX);
        let waits_for = |back: usize| (waits >> (back - 1)) & 1 == 1;
        matches!(progress.places[number], Place::Open(_))
            && (1..=number.min(WINDOW)).all(|back| !waits_for(back) || is_done(number - back))
    }

    /// Evaluates rules until none is left.
    pub fn evaluate_rules(&self, setting: &EvaluationSettings, engine: &dyn Engine) {
        while let Some(mut taken) = self.take() {
            let number = taken.number;
            if let Some(status) = &mut taken.status {
                status.take_turn(number, &self.turn, setting, engine);
            }
        }
    }

    /// Ends the cycle; `None`: an evaluation panicked.
    pub fn finish(self, engine: &dyn Engine) -> Option<Group> {
        let Self { mut group, turn, progress, .. } = self;
        let places = progress.into_inner().unwrap_or_else(PoisonError::into_inner).places;
        let done = |place: Place| if let Place::Done(status) = place { Some(*status) } else { None };
        group.rules = places.into_iter().map(done).collect::<Option<_>>()?;
        group.end_cycle(&turn, engine);
        Some(group)
    }
}

#[cfg(test)]
mod tests;
