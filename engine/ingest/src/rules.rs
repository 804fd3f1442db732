//! Applies data-extraction rules to decoded batches before they are stored (`config-api` 3.7). This file handles logs,
//! `spans` spans.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_types::LogsBatch;
use quiver_types::cancellation::{RULE_MAX, Until, Watch};
use quiver_types::extraction::{ExtractionRule, Record};

mod changes;
mod columns;
mod spans;
#[cfg(test)]
mod tests;

use changes::Changes;
use columns::{Chunk, Plan, RulePlan};

/// Mean time per record above which a rule is too slow, in nanoseconds.
const BUDGET_NS: u64 = 20_000;
/// How long a rule may be over its budget, in milliseconds.
const PATIENCE_MS: i64 = 60_000;
/// Fewest records of a minute that judge a rule.
const JUDGED_MIN: u64 = 100;
/// Most log records that rules go over at once.
const CHUNK_ROWS: usize = 2048;

/// Counters of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleCounts {
    /// Records that it was applied to.
    pub seen: u64,
    /// Records in which it found something.
    pub matched: u64,
    /// Targets that could not be written.
    pub failed: u64,
    /// Time that it took.
    pub ns: u64,
    /// Whether it is left out because it took too long.
    pub suspended: bool,
}

impl RuleCounts {
    /// Mean time per record, in microseconds.
    pub fn mean_us(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.ns as f64 / self.seen as f64 / 1000.0 }
    }
}

/// A rule and what it did.
#[derive(Debug)]
struct RuleState {
    rule: ExtractionRule,
    /// Tells two versions of a rule apart.
    version: i64,
    seen: AtomicU64,
    matched: AtomicU64,
    failed: AtomicU64,
    ns: AtomicU64,
    /// Whether it was stopped in the present minute: it looked at texts for too long.
    stopped: AtomicBool,
    /// Records and time when the present minute began.
    minute: parking_lot::Mutex<(i64, u64, u64)>,
    suspended: AtomicBool,
}

/// Whose records and spans rules are applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Those of all senders.
    All,
    /// Those of browsers only.
    Browsers,
}

/// All enabled rules of a signal, in their order.
#[derive(Debug, Default)]
pub struct ExtractionRules {
    rules: Vec<Arc<RuleState>>,
    /// What they name and ask of log records, together and each.
    plan: Plan,
    planned: Vec<RulePlan>,
    /// What each makes unknown of a span that it writes to.
    stale: Vec<Vec<usize>>,
}

impl ExtractionRules {
    /// Takes rules in their order, each with its version; what did not change goes on counting.
    pub fn new(rules: Vec<(ExtractionRule, i64)>, earlier: &Self) -> Self {
        let known: HashMap<(&str, i64), &Arc<RuleState>> =
            earlier.rules.iter().map(|r| ((r.rule.id.as_str(), r.version), r)).collect();
        let each = rules.into_iter().map(|(rule, version)| {
            let same = known.get(&(rule.id.as_str(), version)).map(|r| Arc::clone(r));
            same.unwrap_or_else(|| {
                Arc::new(RuleState {
                    rule,
                    version,
                    seen: AtomicU64::default(),
                    matched: AtomicU64::default(),
                    failed: AtomicU64::default(),
                    ns: AtomicU64::default(),
                    stopped: AtomicBool::default(),
                    minute: parking_lot::Mutex::default(),
                    suspended: AtomicBool::default(),
                })
            })
        });
        let rules: Vec<Arc<RuleState>> = each.collect();
        let (plan, planned) = Plan::of(rules.iter().map(|running| &running.rule));
        let stale = spans::stale(&plan, &planned, &rules);
        Self { rules, plan, planned, stale }
    }

    /// Says whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What a rule did so far; nothing for one that is not running.
    pub fn figures(&self, id: &str) -> RuleCounts {
        let found = self.rules.iter().find(|r| r.rule.id == id);
        found.map(|r| r.figures()).unwrap_or_default()
    }

    /// The rules for records of a service, by their places.
    fn places(&self, service: &str) -> Vec<usize> {
        let running = self.rules.iter().enumerate();
        let wanted = running.filter(|(_, r)| !r.suspended.load(Relaxed) && r.rule.is_for(service));
        wanted.map(|(place, _)| place).collect()
    }

    /// The rules for records of a service.
    fn wanted(&self, service: &str) -> Vec<&RuleState> {
        self.places(service).into_iter().map(|place| &*self.rules[place]).collect()
    }

    /// Applies the rules to a record of a service, whatever it is.
    pub fn apply_to(&self, record: &mut dyn Record, service: &str) {
        run(&self.wanted(service), record);
    }

    /// Gives the ids of rules that took too long for a minute and are left out from now on.
    pub fn over_budget(&self, now_ms: i64) -> Vec<String> {
        self.rules.iter().filter(|r| r.is_over(now_ms)).map(|r| r.rule.id.clone()).collect()
    }

    /// Applies the rules to records of a batch of logs. Gives what [`Self::over_budget`] does.
    pub fn apply(&self, batch: &mut LogsBatch, clients: Clients, now_ms: i64) -> Vec<String> {
        if self.is_empty() || batch.is_empty() {
            return Vec::new();
        }
        // The rules for a service are looked up once per service.
        let wanted: Vec<Vec<usize>> = batch.services.iter().map(|service| self.places(service)).collect();
        if wanted.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        let known = self.plan.known(batch);
        let mut changes = Changes::default();
        for first in (0..batch.len()).step_by(CHUNK_ROWS) {
            let rows = CHUNK_ROWS.min(batch.len() - first);
            let mut chunk = Chunk::new(&self.plan, batch, &known, first, rows);
            self.apply_to_chunk(&mut chunk, rows_by_service(batch, first, rows, clients), &wanted);
            let (sets, texts) = chunk.into_set();
            changes.extend(first, sets.into_iter(), &texts);
        }
        changes.put_into(batch, &self.plan, &known);
        self.over_budget(now_ms)
    }

    /// Runs rules over records of a chunk, which come by service: no record looks at another one, so that each rule is
    /// done with all of them before the next one begins.
    fn apply_to_chunk(&self, chunk: &mut Chunk<'_>, by_service: Vec<Vec<usize>>, wanted: &[Vec<usize>]) {
        let until = Until::new(RULE_MAX);
        let mut watch = Watch::new(Arc::clone(&until) as _);
        // Where one rule ends the next one begins.
        let mut began = Instant::now();
        for (mut rows, places) in by_service.into_iter().zip(wanted) {
            if !places.is_empty() {
                chunk.begin();
            }
            for place in places {
                if rows.is_empty() {
                    break;
                }
                until.restart();
                let (running, seen) = (&self.rules[*place], rows.len() as u64);
                let (matched, failed) = running.apply_to_rows(chunk, &self.planned[*place], &mut rows, &watch);
                let ended = Instant::now();
                running.count(ended - began, seen, matched, failed);
                began = ended;
                if watch.is_stopped() {
                    watch = Watch::new(Arc::clone(&until) as _);
                }
            }
        }
    }
}

/// Places of the records of each service in a chunk.
fn rows_by_service(batch: &LogsBatch, first: usize, rows: usize, clients: Clients) -> Vec<Vec<usize>> {
    let mut by_service = vec![Vec::new(); batch.services.len()];
    for row in 0..rows {
        if clients == Clients::All || is_of_browser(batch, first + row) {
            by_service[batch.row_services[first + row] as usize].push(row);
        }
    }
    by_service
}

/// Runs rules in their order, until one that matched ends the chain.
fn run(rules: &[&RuleState], record: &mut dyn Record) {
    for running in rules {
        if running.apply(record) && running.rule.stop {
            return;
        }
    }
}

/// Whether a record was sent by an instrumentation of browsers.
fn is_of_browser(batch: &LogsBatch, row: usize) -> bool {
    batch.row(row).find(|(name, _)| *name == "telemetry.sdk.language").is_some_and(|(_, language)| language == "webjs")
}

impl RuleState {
    fn figures(&self) -> RuleCounts {
        RuleCounts {
            seen: self.seen.load(Relaxed),
            matched: self.matched.load(Relaxed),
            failed: self.failed.load(Relaxed),
            ns: self.ns.load(Relaxed),
            suspended: self.suspended.load(Relaxed),
        }
    }

    /// Applies the rule; says whether it matched.
    fn apply(&self, record: &mut dyn Record) -> bool {
        let began = Instant::now();
        let applied = self.rule.apply(record);
        self.count(began.elapsed(), 1, u64::from(applied.matched), applied.errors.len() as u64);
        applied.matched
    }

    /// Applies the rule to records of a chunk; those for which it ends the chain are taken away. Gives how many matched, and
    /// how many targets could not be written.
    fn apply_to_rows(
        &self,
        chunk: &mut Chunk<'_>,
        planned: &RulePlan,
        rows: &mut Vec<usize>,
        watch: &Watch,
    ) -> (u64, u64) {
        let mut failed = 0;
        let selected = watch.over(|| {
            let (mut selected, mut rule) = (chunk.select(planned, rows), self.rule.extracting());
            if watch.is_stopped() {
                selected.clear();
            }
            selected.retain(|row| {
                let applied = chunk.apply(&mut rule, planned, *row);
                failed += applied.unwrap_or_default();
                applied.is_some()
            });
            selected
        });
        if watch.is_stopped() {
            self.stopped.store(true, Relaxed);
            chunk.doubt();
        }
        if self.rule.stop && !selected.is_empty() {
            // Both are in order.
            rows.retain(|row| selected.binary_search(row).is_err());
            chunk.forget();
        }
        (selected.len() as u64, failed)
    }

    /// Counts records that it was put to, and how long that took.
    fn count(&self, took: Duration, seen: u64, matched: u64, failed: u64) {
        self.ns.fetch_add(took.as_nanos() as u64, Relaxed);
        self.seen.fetch_add(seen, Relaxed);
        // Most rules find nothing in most records.
        for (figure, more) in [(&self.matched, matched), (&self.failed, failed)] {
            if more > 0 {
                figure.fetch_add(more, Relaxed);
            }
        }
    }

    /// Judges the minute that ended; says whether the rule has just been suspended.
    fn is_over(&self, now_ms: i64) -> bool {
        let (seen, ns) = (self.seen.load(Relaxed), self.ns.load(Relaxed));
        let mut minute = self.minute.lock();
        if minute.0 == 0 {
            *minute = (now_ms, 0, 0);
        }
        if now_ms - minute.0 < PATIENCE_MS {
            return false;
        }
        let (records, time) = (seen - minute.1, ns - minute.2);
        *minute = (now_ms, seen, ns);
        let judged = self.stopped.swap(false, Relaxed) || records >= JUDGED_MIN;
        let slow = judged && time / records.max(1) > BUDGET_NS;
        slow && !self.suspended.swap(true, Relaxed)
    }
}
