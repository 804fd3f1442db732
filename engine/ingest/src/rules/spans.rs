//! Data-extraction rules of spans. They set attributes of the span, with the type that the rule gives.
//!
//! As for logs, each rule is applied to many spans at once, tests that several rules share are evaluated once, and
//! everything that is searched for in one field is found in one pass over its text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use quiver_types::SpansBatch;
use quiver_types::cancellation::{RULE_MAX, Until, Watch};
use quiver_types::condition::{FieldName, Fields};
use quiver_types::extraction::{ConvertedValue, Record};
use quiver_types::spans::{Attributes, SpanRow, Value};

use super::columns::{FAILS, HOLDS, Plan, RulePlan, UNKNOWN};
use super::{Clients, ExtractionRules, RuleState};
use crate::transaction_detection::each_row;

/// Most spans that rules go over at once.
const CHUNK_ROWS: usize = if cfg!(test) { 7 } else { 512 };

/// What rules set of a span.
type Set = Vec<(String, serde_json::Value)>;

/// A span with what rules set.
struct SpanRecord<'a> {
    row: SpanRow<'a>,
    set: Set,
}

/// The attribute that a name means.
fn key_of(name: &FieldName) -> Option<&str> {
    match name {
        FieldName::Attribute(key) | FieldName::Bare(key) => Some(key),
        FieldName::Intrinsic(_) | FieldName::Resource(_) => None,
    }
}

/// The attribute that a target writes.
fn written(field: &str) -> &str {
    field.strip_prefix("attributes.").unwrap_or(field)
}

impl Fields for SpanRecord<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let own = key_of(name).and_then(|key| self.set.iter().find(|(known, _)| known == key));
        match own {
            Some((_, serde_json::Value::Null)) => None,
            Some((_, serde_json::Value::String(text))) => Some(Cow::Borrowed(text)),
            Some((_, other)) => Some(Cow::Owned(other.to_string())),
            None => self.row.get(name),
        }
    }
}

impl SpanRecord<'_> {
    fn put(&mut self, field: &str, value: serde_json::Value) {
        let key = written(field);
        match self.set.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.set.push((key.to_owned(), value)),
        }
    }
}

impl Record for SpanRecord<'_> {
    fn set(&mut self, field: &str, value: &serde_json::Value) {
        self.put(field, value.clone());
    }

    fn write(&mut self, _: usize, field: &str, made: &ConvertedValue<'_>) {
        self.put(field, made.to_json());
    }
}

fn value_of(value: &serde_json::Value) -> Option<Value<'_>> {
    match value {
        serde_json::Value::String(text) => Some(Value::Text(text)),
        serde_json::Value::Bool(truth) => Some(Value::Bool(*truth)),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(Value::Int(whole)),
            None => number.as_f64().map(Value::Double),
        },
        _ => None,
    }
}

/// The tests and sources that each rule makes unknown where it writes.
pub(super) fn stale(plan: &Plan, planned: &[RulePlan], rules: &[Arc<RuleState>]) -> Vec<Vec<usize>> {
    let of_tests = (0..plan.tests.len()).map(|test| (test, plan.tests.field(test)));
    let of_sources = planned.iter().zip(rules).filter_map(|(planned, running)| {
        let (field, _) = running.rule.sought()?;
        Some((planned.source?, field))
    });
    let mut by_key: HashMap<&str, Vec<usize>> = HashMap::new();
    for (asker, field) in of_tests.chain(of_sources) {
        if let Some(key) = key_of(field) {
            by_key.entry(key).or_default().push(asker);
        }
    }
    let of_field = |field: &str| by_key.get(written(field)).into_iter().flatten().copied();
    rules.iter().map(|running| running.rule.writes().flat_map(&of_field).collect()).collect()
}

/// A group of spans, with the results of tests on them so far.
struct Chunk<'a, 'r> {
    rules: &'r ExtractionRules,
    records: Vec<SpanRecord<'a>>,
    /// Places of the spans of each service.
    by_service: Vec<Vec<usize>>,
    /// By span, then by asker of [`Plan`].
    answers: Vec<u8>,
    /// By span, then by screen: whether it has looked.
    screened: Vec<bool>,
}

impl<'r> Chunk<'_, 'r> {
    fn new(rules: &'r ExtractionRules, services: usize) -> Self {
        let by_service = vec![Vec::new(); services];
        let (answers, screened) = (Vec::new(), Vec::new());
        Self { rules, records: Vec::new(), by_service, answers, screened }
    }

    fn askers(&self) -> usize {
        self.rules.plan.tests.len() + self.rules.rules.len()
    }

    /// What is known of a span.
    fn answers_of(&mut self, row: usize) -> &mut [u8] {
        let askers = self.askers();
        &mut self.answers[row * askers..][..askers]
    }

    /// Runs the rules for each service, and gives what they set of each span.
    fn run(&mut self, wanted: &[Vec<usize>], found: &mut Vec<Set>) {
        let spans = self.records.len();
        self.answers.clear();
        self.answers.resize(spans * self.askers(), UNKNOWN);
        self.screened.clear();
        self.screened.resize(spans * self.rules.plan.screens.len(), false);
        for (service, places) in wanted.iter().enumerate() {
            let mut rows = std::mem::take(&mut self.by_service[service]);
            for place in places {
                if rows.is_empty() {
                    break;
                }
                self.apply(*place, &mut rows);
            }
            rows.clear();
            self.by_service[service] = rows;
        }
        found.extend(self.records.drain(..).map(|record| record.set));
    }

    /// Applies a rule to some spans; those for which it ends the chain are taken away.
    fn apply(&mut self, place: usize, rows: &mut Vec<usize>) {
        let (began, rules) = (Instant::now(), self.rules);
        let (running, planned) = (&rules.rules[place], &rules.planned[place]);
        let (seen, mut matched, mut failed) = (rows.len() as u64, 0, 0);
        let (watch, mut rule) = (Watch::new(Until::new(RULE_MAX)), running.rule.extracting());
        watch.over(|| {
            rows.retain(|row| {
                if watch.is_stopped() {
                    return true;
                }
                let may_match = self.may_match(planned, *row);
                if watch.is_stopped() {
                    // Some of what tests said was said by work that was stopped.
                    self.answers_of(*row).fill(UNKNOWN);
                    return true;
                }
                if !may_match {
                    return true;
                }
                let Some(errors) = rule.extract(&mut self.records[*row], None) else { return true };
                matched += 1;
                failed += errors;
                let first = *row * self.askers();
                rules.stale[place].iter().for_each(|asker| self.answers[first + asker] = UNKNOWN);
                !running.rule.stop
            });
        });
        if watch.is_stopped() {
            running.stopped.store(true, Relaxed);
        }
        running.count(began.elapsed(), seen, matched, failed);
    }

    /// Says whether a span fulfils the condition of a rule, and its method may find something.
    fn may_match(&mut self, planned: &RulePlan, row: usize) -> bool {
        let rules = self.rules;
        let condition = planned.condition.map(|place| &rules.plan.conditions[place].0);
        if condition.is_some_and(|condition| !condition.holds(&mut |test| self.ask(test, row))) {
            return false;
        }
        planned.source.is_none_or(|asker| self.look(asker, row) != FAILS)
    }

    /// What is known of a test or source of a span, once its screen has looked.
    fn look(&mut self, asker: usize, row: usize) -> u8 {
        let (screens, first) = (&self.rules.plan.screens, row * self.askers());
        let Some(place) = screens.place(asker) else { return self.answers[first + asker] };
        if !std::mem::replace(&mut self.screened[row * screens.len() + place], true) {
            let answers = &mut self.answers[first..];
            screens.askers(place).iter().for_each(|other| answers[*other] = FAILS);
            if let Some(text) = self.records[row].get(screens.field(place)) {
                let tests = &self.rules.plan.tests;
                screens.find(place, &text, &mut |other| {
                    // Behind the tests are sources of rules, of which only the method tells.
                    let is_told = other < tests.len() && tests.is_told(other);
                    answers[other] = if is_told { HOLDS } else { UNKNOWN };
                });
            }
        }
        self.answers[first + asker]
    }

    fn ask(&mut self, test: usize, row: usize) -> bool {
        let mut answer = self.look(test, row);
        if answer == UNKNOWN {
            let tests = &self.rules.plan.tests;
            let found = self.records[row].get(tests.field(test));
            answer = if tests.passes(test, found.as_deref()) { HOLDS } else { FAILS };
            let at = row * self.askers() + test;
            self.answers[at] = answer;
        }
        answer == HOLDS
    }
}

impl ExtractionRules {
    /// Applies the rules to spans of a batch. Gives what [`Self::over_budget`] does.
    pub fn apply_to_spans(&self, batch: &mut SpansBatch, clients: Clients, now_ms: i64) -> Vec<String> {
        if self.is_empty() || batch.is_empty() {
            return Vec::new();
        }
        let Some(found) = self.found_in_spans(batch, clients) else { return Vec::new() };
        if found.iter().any(|set| !set.is_empty()) {
            write(batch, &found);
        }
        self.over_budget(now_ms)
    }

    /// What rules set of each span; none: no rule is for any.
    fn found_in_spans(&self, batch: &SpansBatch, clients: Clients) -> Option<Vec<Set>> {
        // The rules for a service are looked up once per service.
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut wanted: Vec<Vec<usize>> = Vec::new();
        let services = batch.contexts["service"].as_string::<i32>().iter().map(Option::unwrap_or_default);
        let service_of: Vec<usize> = services
            .map(|service| {
                *numbers.entry(service).or_insert_with(|| {
                    wanted.push(self.places(service));
                    wanted.len() - 1
                })
            })
            .collect();
        if wanted.iter().all(Vec::is_empty) {
            return None;
        }
        let mut found: Vec<Set> = Vec::with_capacity(batch.len());
        let mut chunk = Chunk::new(self, wanted.len());
        each_row(batch, |row, context| {
            if clients == Clients::All || is_of_browser(&row) {
                chunk.by_service[service_of[context]].push(chunk.records.len());
            }
            chunk.records.push(SpanRecord { row, set: Vec::new() });
            if chunk.records.len() == CHUNK_ROWS {
                chunk.run(&wanted, &mut found);
            }
        });
        chunk.run(&wanted, &mut found);
        Some(found)
    }
}

fn is_of_browser(row: &SpanRow<'_>) -> bool {
    let language = row.get(&FieldName::Resource("telemetry.sdk.language".to_owned()));
    language.is_some_and(|language| language == "webjs")
}

fn write(batch: &mut SpansBatch, found: &[Vec<(String, serde_json::Value)>]) {
    let (place, _) = batch.spans.schema_ref().column_with_name("attributes").expect("a column of all spans");
    let old = batch.spans.column(place).as_binary::<i32>();
    let mut new = BinaryBuilder::with_capacity(old.len(), old.value_data().len() + found.len() * 32);
    for (row, set) in found.iter().enumerate() {
        if set.is_empty() {
            new.append_value(old.value(row));
            continue;
        }
        let others = Attributes::read(old.value(row)).filter(|(key, _)| set.iter().all(|(known, _)| known != key));
        let own = set.iter().filter_map(|(key, value)| Some((key.as_str(), value_of(value)?)));
        new.append_value(Attributes::of(others.chain(own)).bytes());
    }
    let mut columns = batch.spans.columns().to_vec();
    columns[place] = Arc::new(new.finish());
    batch.spans = RecordBatch::try_new(batch.spans.schema(), columns).expect("the same columns, one with other values");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::subsequence;
    use quiver_types::extraction::ExtractionRule;
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, find_text};
    use serde_json::json;

    use super::*;

    fn spans() -> SpansBatch {
        let mut builder = SpansBuilder::default();
        let mut resource = vec![("telemetry.sdk.language", Value::Text("webjs"))];
        resource.sort_unstable_by_key(|(key, _)| *key);
        let resource = Attributes::of(resource);
        let cart = builder.context(&ContextFields { service: "cart", ..ContextFields::default() });
        let fields = ContextFields { service: "web", resource: resource.bytes(), ..ContextFields::default() };
        let web = builder.context(&fields);
        for (n, context) in [cart, web, cart].into_iter().enumerate() {
            builder.attributes(&mut vec![("url.path", Value::Text("/orders/17"))]);
            let fields = SpanFields {
                trace_id: [1; 16],
                span_id: [n as u8 + 1; 8],
                context,
                name: "GET",
                start: 1,
                end: 2,
                ..SpanFields::default()
            };
            builder.span(&fields);
        }
        builder.finish()
    }

    #[test]
    fn attributes_are_added_with_their_types() {
        let body = json!({"signal": "spans", "service": "cart", "source": "url.path", "method": "regex",
            "expression": "/orders/(?P<id>[0-9]+)", "targets": [{"field": "order.id", "from": "id", "type": "int"}]});
        let rule = ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap();
        let rules = ExtractionRules::new(vec![(rule, 1)], &ExtractionRules::default());
        let mut batch = spans();
        assert!(rules.apply_to_spans(&mut batch, Clients::All, 1).is_empty());
        assert!(batch.is_sound());
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        assert_eq!(
            Attributes::read(attributes.value(0)).find(|(k, _)| *k == "order.id").map(|(_, v)| v),
            Some(Value::Int(17))
        );
        assert_eq!(find_text(attributes.value(1), "order.id"), None, "another service");
        assert_eq!(find_text(attributes.value(2), "url.path").as_deref(), Some("/orders/17"));
        assert_eq!(rules.figures("r").seen, 2);
    }

    #[test]
    fn those_of_browsers_alone() {
        let body = json!({"signal": "rum", "method": "constant", "expression": "x", "targets": [{"field": "y"}]});
        let rule = ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap();
        let rules = ExtractionRules::new(vec![(rule, 1)], &ExtractionRules::default());
        let mut batch = spans();
        rules.apply_to_spans(&mut batch, Clients::Browsers, 1);
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        let found: Vec<bool> = (0..3).map(|row| find_text(attributes.value(row), "y").is_some()).collect();
        assert_eq!(found, [false, true, false]);
    }

    fn rule(id: &str, mut body: serde_json::Value) -> (ExtractionRule, i64) {
        body["signal"] = json!("spans");
        (ExtractionRule::of_json(id, body.as_object().unwrap()).unwrap(), 1)
    }

    /// Rules that read what others write, write over it, take it away, share tests and end the chain; enough look for texts
    /// in the same fields that these are screened.
    fn chain() -> Vec<serde_json::Value> {
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        let regex = |source: &str, expression: &str, field: &str| {
            json!({"method": "regex", "source": source, "expression": expression,
                "targets": [{"field": field, "from": "a", "type": "int", "overwrite": true}]})
        };
        let constant = |text: &str, field: &str, condition: serde_json::Value| {
            json!({"method": "constant", "expression": text, "condition": condition,
                "targets": [{"field": field, "overwrite": true}]})
        };
        let mut last = constant("end", "end", leaf("kind", "eq", json!("slow")));
        last["stop"] = json!(true);
        let mut of_cart = regex("url", "cart/(?P<a>[0-9]+)", "id");
        of_cart["service"] = json!("cart");
        let gone = json!({"method": "logfmt", "source": "attributes.url", "targets": [
            {"field": "url", "from": "id", "type": "int", "onError": "null", "overwrite": true}]});
        vec![
            of_cart,
            regex("url", "pay/(?P<a>[0-9]+)", "attributes.id"),
            regex("attributes.url", "/(?P<a>items?)", "id"),
            constant("/pay/17/", "url", leaf("url", "contains", json!("cart/"))),
            constant("slow", "kind", leaf("url", "startsWith", json!("/pay"))),
            constant("big", "size", json!({"any": [leaf("id", "ge", json!(10)), leaf("kind", "eq", json!("big"))]})),
            constant("none", "attributes.kind", json!({"not": leaf("url", "exists", json!(true))})),
            constant(
                "x",
                "zone",
                json!({"all": [leaf("zone", "eq", json!("eu")), leaf("url", "contains", json!("item"))]}),
            ),
            constant("name", "kind", leaf("span.name", "endsWith", json!("ET"))),
            last,
            gone,
        ]
    }

    const TEXTS: [&str; 6] = ["/cart/5", "/pay/12/item", "/items", "slow", "id=7", "eu"];

    fn texts(attributes: &[u8]) -> Vec<(String, String)> {
        let mut all: Vec<_> =
            Attributes::read(attributes).map(|(key, v)| (key.to_owned(), v.text().into_owned())).collect();
        all.sort();
        all
    }

    proptest! {
        /// Rules over many spans do what each of them does to each span.
        #[test]
        fn batches_become_what_their_spans_do(
            chosen in subsequence((0..11).collect::<Vec<usize>>(), 0..=11).prop_shuffle(),
            spans in vec((0..2_usize, any::<bool>(), vec((0..3_usize, 0..TEXTS.len()), 0..4)), 1..30),
        ) {
            let bodies = chain();
            let compiled = chosen.iter().map(|n| rule(&n.to_string(), bodies[*n].clone())).collect();
            let rules = ExtractionRules::new(compiled, &ExtractionRules::default());
            let mut builder = SpansBuilder::default();
            let resource = Attributes::of([("zone", Value::Text("eu"))]);
            let contexts = ["cart", "pay"].map(|service| {
                builder.context(&ContextFields { service, resource: resource.bytes(), ..ContextFields::default() })
            });
            for (n, (service, named, fields)) in spans.iter().enumerate() {
                let mut own: Vec<(&str, Value<'_>)> = Vec::new();
                for (key, text) in fields {
                    let key = ["url", "kind", "id"][*key];
                    if own.iter().all(|(known, _)| *known != key) {
                        own.push((key, Value::Text(TEXTS[*text])));
                    }
                }
                builder.attributes(&mut own);
                let name = if *named { "GET" } else { "put" };
                builder.span(&SpanFields {
                    trace_id: [1; 16],
                    span_id: [n as u8 + 1; 8],
                    context: contexts[*service],
                    name,
                    start: 1,
                    end: 2,
                    ..SpanFields::default()
                });
            }
            let mut batch = builder.finish();
            let (mut expected, mut figures) = (Vec::new(), vec![(0, 0, 0); chosen.len()]);
            each_row(&batch, |row, _| {
                let mut record = SpanRecord { row, set: Vec::new() };
                for (n, running) in rules.rules.iter().enumerate().filter(|(_, r)| r.rule.is_for(row.service)) {
                    let applied = running.rule.apply(&mut record);
                    let (seen, matched, failed) = figures[n];
                    figures[n] = (seen + 1, matched + u64::from(applied.matched), failed + applied.errors.len() as u64);
                    if applied.matched && running.rule.stop {
                        break;
                    }
                }
                let set = record.set;
                let mut all = texts(row.attributes);
                all.retain(|(key, _)| set.iter().all(|(field, _)| field != key));
                all.extend(set.iter().filter_map(|(key, v)| Some((key.clone(), value_of(v)?.text().into_owned()))));
                all.sort();
                expected.push(all);
            });
            rules.apply_to_spans(&mut batch, Clients::All, 1);
            prop_assert!(batch.is_sound());
            let attributes = batch.spans["attributes"].as_binary::<i32>();
            for (row, expected) in expected.iter().enumerate() {
                prop_assert_eq!(&texts(attributes.value(row)), expected, "span {}", row);
            }
            for (n, expected) in chosen.iter().zip(figures) {
                let found = rules.figures(&n.to_string());
                prop_assert_eq!((found.seen, found.matched, found.failed), expected);
            }
        }
    }

    /// What many rules look for is looked for together: a rule whose text is not there is done with by that.
    #[test]
    fn what_is_not_there_is_not_asked() {
        let of_path = |n: usize| {
            json!({"source": "url.path", "method": "regex", "expression": format!("/other{n}/(?P<a>.)"),
                "targets": [{"field": "a", "from": "a"}]})
        };
        let rules = (0..4).map(|n| rule(&n.to_string(), of_path(n))).collect();
        let rules = ExtractionRules::new(rules, &ExtractionRules::default());
        let batch = spans();
        let mut chunk = Chunk::new(&rules, 1);
        each_row(&batch, |row, _| chunk.records.push(SpanRecord { row, set: Vec::new() }));
        chunk.answers = vec![UNKNOWN; 3 * chunk.askers()];
        chunk.screened = vec![false; 3];
        assert!(rules.planned.iter().all(|planned| !chunk.may_match(planned, 1)));
        assert_eq!(chunk.screened, [false, true, false]);
    }
}
