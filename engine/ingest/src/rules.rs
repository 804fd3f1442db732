//! Data-extraction rules on their way through what came in: after decoding, before the store (`config-api` 3.7). Batches of
//! logs are here; `spans` does the same for spans.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use quiver_types::LogsBatch;
use quiver_types::condition::{FieldName, Fields};
use quiver_types::extraction::{ExtractionRule, Record};
use quiver_types::logs::{RecordMarks, RowFields};
use serde_json::Value;

mod spans;

/// Mean time per record above which a rule is too slow, in nanoseconds.
const BUDGET_NS: u64 = 20_000;
/// How long a rule may be over its budget, in milliseconds.
const PATIENCE_MS: i64 = 60_000;
/// Fewest records of a minute that judge a rule.
const JUDGED_MIN: u64 = 100;

/// What a rule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Records that it was put to.
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

impl Figures {
    /// Mean time per record, in microseconds.
    pub fn mean_us(&self) -> f64 {
        if self.seen == 0 { 0.0 } else { self.ns as f64 / self.seen as f64 / 1000.0 }
    }
}

/// A rule and what it did.
#[derive(Debug)]
struct Running {
    rule: ExtractionRule,
    /// Tells two versions of a rule apart.
    version: i64,
    seen: AtomicU64,
    matched: AtomicU64,
    failed: AtomicU64,
    ns: AtomicU64,
    /// Records and time when the present minute began.
    minute: parking_lot::Mutex<(i64, u64, u64)>,
    suspended: AtomicBool,
}

/// All enabled rules of a signal, in their order.
#[derive(Debug, Default)]
pub struct ExtractionRules {
    rules: Vec<Arc<Running>>,
}

impl ExtractionRules {
    /// Takes rules in their order, each with its version; what did not change goes on counting.
    pub fn new(rules: Vec<(ExtractionRule, i64)>, earlier: &Self) -> Self {
        let known: HashMap<(&str, i64), &Arc<Running>> =
            earlier.rules.iter().map(|r| ((r.rule.id.as_str(), r.version), r)).collect();
        let each = rules.into_iter().map(|(rule, version)| {
            let same = known.get(&(rule.id.as_str(), version)).map(|r| Arc::clone(r));
            same.unwrap_or_else(|| {
                Arc::new(Running {
                    rule,
                    version,
                    seen: AtomicU64::default(),
                    matched: AtomicU64::default(),
                    failed: AtomicU64::default(),
                    ns: AtomicU64::default(),
                    minute: parking_lot::Mutex::default(),
                    suspended: AtomicBool::default(),
                })
            })
        });
        Self { rules: each.collect() }
    }

    /// Says whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What a rule did so far; nothing for one that is not running.
    pub fn figures(&self, id: &str) -> Figures {
        let found = self.rules.iter().find(|r| r.rule.id == id);
        found.map(|r| r.figures()).unwrap_or_default()
    }

    /// The rules for records of a service.
    fn wanted(&self, service: &str) -> Vec<&Running> {
        let running = self.rules.iter().map(|r| &**r);
        running.filter(|r| !r.suspended.load(Relaxed) && r.rule.is_for(service)).collect()
    }

    /// Applies the rules to a record of a service, whatever it is.
    pub fn apply_to(&self, record: &mut dyn Record, service: &str) {
        run(&self.wanted(service), record);
    }

    /// Gives the ids of rules that took too long for a minute and are left out from now on.
    pub fn over_budget(&self, now_ms: i64) -> Vec<String> {
        self.rules.iter().filter(|r| r.is_over(now_ms)).map(|r| r.rule.id.clone()).collect()
    }

    /// Applies the rules to a batch of logs: to records of browsers only, or to all. Gives what [`Self::over_budget`] does.
    pub fn apply(&self, batch: &mut LogsBatch, of_browsers: bool, now_ms: i64) -> Vec<String> {
        if self.is_empty() || batch.is_empty() {
            return Vec::new();
        }
        // Which rules are for a service is asked once per service.
        let wanted: Vec<Vec<&Running>> = batch.services.iter().map(|service| self.wanted(service)).collect();
        if wanted.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        let mut rewritten: Option<Rewritten> = None;
        for row in 0..batch.len() {
            let mut record = Row { row: batch.row(row), set: Vec::new() };
            if !of_browsers || is_of_browser(&record) {
                run(&wanted[batch.row_services[row] as usize], &mut record);
            }
            let set = record.set;
            if rewritten.is_none() && !set.is_empty() {
                let mut begun = Rewritten::new(batch);
                (0..row).for_each(|earlier| begun.copy(batch, earlier, &[]));
                rewritten = Some(begun);
            }
            if let Some(rewritten) = &mut rewritten {
                rewritten.copy(batch, row, &set);
            }
        }
        if let Some(rewritten) = rewritten {
            *batch = rewritten.batch;
        }
        self.over_budget(now_ms)
    }
}

/// Runs rules in their order, until one that matched ends the chain.
fn run(rules: &[&Running], record: &mut dyn Record) {
    for running in rules {
        if running.apply(record) && running.rule.stop {
            return;
        }
    }
}

/// Whether a record was sent by an instrumentation of browsers.
fn is_of_browser(record: &Row<'_>) -> bool {
    record.get(&FieldName::Bare("telemetry.sdk.language".to_owned())).is_some_and(|language| language == "webjs")
}

impl Running {
    fn figures(&self) -> Figures {
        Figures {
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
        self.ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        self.seen.fetch_add(1, Relaxed);
        self.matched.fetch_add(u64::from(applied.matched), Relaxed);
        self.failed.fetch_add(applied.errors.len() as u64, Relaxed);
        applied.matched
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
        let slow = records >= JUDGED_MIN && time / records > BUDGET_NS;
        slow && !self.suspended.swap(true, Relaxed)
    }
}

/// A row that rules are applied to: what they set goes before what it has.
struct Row<'a> {
    row: RowFields<'a>,
    set: Vec<(String, Option<String>)>,
}

/// The field of a record that a name means.
fn key_of(name: &FieldName) -> &str {
    match name {
        FieldName::Intrinsic(key) => key,
        FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => key,
    }
}

impl Fields for Row<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let key = key_of(name);
        if let Some((_, value)) = self.set.iter().find(|(known, _)| known == key) {
            return value.as_deref().map(Cow::Borrowed);
        }
        let find = |key: &str| self.row.clone().find(|(known, _)| *known == key).map(|(_, v)| Cow::Borrowed(v));
        // Who sends severity calls it so or otherwise.
        find(key).or_else(|| (key == "severity").then(|| find("severity_text").or_else(|| find("level"))).flatten())
    }
}

impl Record for Row<'_> {
    fn set(&mut self, field: &str, value: &Value) {
        let text = match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        match self.set.iter_mut().find(|(known, _)| known == field) {
            Some((_, old)) => *old = text,
            None => self.set.push((field.to_owned(), text)),
        }
    }
}

/// A batch that is being written anew with what rules set.
struct Rewritten {
    batch: LogsBatch,
    names: HashMap<Arc<str>, u32>,
}

impl Rewritten {
    fn new(of: &LogsBatch) -> Self {
        let names = of.names.iter().enumerate().map(|(n, name)| (Arc::clone(name), n as u32)).collect();
        let batch = LogsBatch {
            names: of.names.clone(),
            services: of.services.clone(),
            streams: of.streams.clone(),
            stream_bytes: of.stream_bytes.clone(),
            ..LogsBatch::default()
        };
        Self { batch, names }
    }

    fn copy(&mut self, of: &LogsBatch, row: usize, set: &[(String, Option<String>)]) {
        for (name, value) in of.row(row) {
            if set.iter().all(|(field, _)| field != name) {
                self.push(name, value);
            }
        }
        for (name, value) in set {
            // An empty value is none.
            if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
                self.push(name, value);
            }
        }
        let marks = RecordMarks {
            severity: of.severity.get(row).copied().unwrap_or(0),
            observed: of.observed.get(row).copied().unwrap_or(0),
        };
        self.batch.end_row(of.time[row], of.row_streams[row], of.row_services[row], marks);
    }

    fn push(&mut self, name: &str, value: &str) {
        let known = self.names.get(name).copied();
        let number = known.unwrap_or_else(|| {
            let (name, number): (Arc<str>, u32) = (name.into(), self.batch.names.len() as u32);
            self.batch.names.push(Arc::clone(&name));
            self.names.insert(name, number);
            number
        });
        self.batch.push_field(number, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(id: &str, body: Value) -> (ExtractionRule, i64) {
        let mut body = body;
        body["signal"] = json!("logs");
        (ExtractionRule::of_json(id, body.as_object().unwrap()).unwrap(), 1)
    }

    fn batch() -> LogsBatch {
        let mut batch = LogsBatch {
            names: vec!["_msg".into(), "level".into()],
            services: vec!["cart".into(), "".into()],
            ..LogsBatch::default()
        };
        let stream = batch.push_stream(&[]);
        for (n, (message, service)) in [("took 12 ms", 0), ("no figure", 0), ("took 7 ms", 1)].iter().enumerate() {
            batch.push_field(0, message);
            batch.push_field(1, "info");
            batch.end_row(n as i64, stream, *service, RecordMarks { severity: 9, observed: 0 });
        }
        batch
    }

    fn rows(batch: &LogsBatch) -> Vec<Vec<(&str, &str)>> {
        (0..batch.len()).map(|row| batch.row(row).collect()).collect()
    }

    #[test]
    fn fields_are_added() {
        let took = json!({"method": "regex", "expression": "took (?P<ms>[0-9]+)", "service": "cart",
            "targets": [{"field": "ms", "from": "ms", "type": "int"}]});
        let rules = ExtractionRules::new(vec![rule("r", took)], &ExtractionRules::default());
        let mut batch = batch();
        assert!(rules.apply(&mut batch, false, 1).is_empty());
        let expected = [
            vec![("_msg", "took 12 ms"), ("level", "info"), ("ms", "12")],
            vec![("_msg", "no figure"), ("level", "info")],
            vec![("_msg", "took 7 ms"), ("level", "info")],
        ];
        assert_eq!(rows(&batch), expected);
        assert_eq!((batch.severity.len(), batch.time.len()), (3, 3));
        let figures = rules.figures("r");
        assert_eq!((figures.seen, figures.matched, figures.failed), (2, 1, 0));
    }

    #[test]
    fn the_chain_ends_where_a_rule_says() {
        let constant = |text: &str, stop: bool| {
            json!({"method": "constant", "expression": text, "stop": stop,
                "targets": [{"field": "level", "overwrite": true}]})
        };
        let rules = vec![rule("a", constant("first", true)), rule("b", constant("second", false))];
        let mut batch = batch();
        ExtractionRules::new(rules, &ExtractionRules::default()).apply(&mut batch, false, 1);
        assert!(rows(&batch).iter().all(|row| row.contains(&("level", "first"))), "{:?}", rows(&batch));
    }

    #[test]
    fn slow_rules_are_left_out() {
        let rules = ExtractionRules::new(
            vec![rule("r", json!({"method": "constant", "expression": "x", "targets": [{"field": "y"}]}))],
            &ExtractionRules::default(),
        );
        rules.apply(&mut batch(), false, 1);
        rules.rules[0].ns.store(1_000_000_000, Relaxed);
        rules.rules[0].seen.store(1000, Relaxed);
        assert_eq!(rules.apply(&mut batch(), false, 30_000), Vec::<String>::new());
        assert_eq!(rules.apply(&mut batch(), false, 61_000), ["r"]);
        let mut after = batch();
        rules.apply(&mut after, false, 62_000);
        assert!(rules.figures("r").suspended && rows(&after) == rows(&batch()));
    }
}
