//! Rules over logs.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use quiver_types::condition::{FieldName, Fields};
use quiver_types::logs::{RecordMarks, RowFields};
use serde_json::{Value, json};

use super::columns::key_of;
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
    assert!(rules.apply(&mut batch, Clients::All, 1).is_empty());
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

/// Breaks if records in which no rule sets anything are moved, within a chunk or at its borders.
#[test]
fn what_nothing_is_set_of_stays() {
    let took =
        json!({"method": "regex", "expression": "took (?P<ms>[0-9]+)", "targets": [{"field": "ms", "from": "ms"}]});
    let level = json!({"method": "constant", "expression": "slow", "targets": [{"field": "level", "overwrite": true}],
        "condition": {"field": "_msg", "op": "endsWith", "value": " 7"}});
    let rules = ExtractionRules::new(vec![rule("a", took), rule("b", level)], &ExtractionRules::default());
    let far = 2 * CHUNK_ROWS;
    for told in [vec![], vec![0], vec![far + 2], vec![CHUNK_ROWS - 1, CHUNK_ROWS], vec![1, 2, far - 1, far + 1]] {
        let mut batch =
            LogsBatch { names: vec!["_msg".into(), "level".into()], services: vec!["".into()], ..LogsBatch::default() };
        let streams = [batch.push_stream(&[]), batch.push_stream(b"x")];
        for n in 0..far + 3 {
            // One of them has nothing at all.
            if n != 5 {
                batch.push_field(0, if told.contains(&n) { "took 7" } else { "no figure" });
                batch.push_field(1, "info");
            }
            batch.end_row(n as i64, streams[n % 2], 0, RecordMarks { severity: 0, observed: (n % 5) as i64 });
        }
        let (before, (expected, _)) = (batch.clone(), one_by_one(&batch, &rules));
        rules.apply(&mut batch, Clients::All, 1);
        assert_eq!((&batch.time, &batch.observed), (&before.time, &before.observed));
        assert_eq!((&batch.row_streams, &batch.severity), (&before.row_streams, &before.severity));
        let found = rows(&batch);
        assert_eq!((found.len(), expected.len()), (far + 3, far + 3));
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(found.iter().copied().eq(expected.iter().map(|(n, v)| (n.as_str(), v.as_str()))), "{told:?} {row}");
        }
    }
}

#[test]
fn the_chain_ends_where_a_rule_says() {
    let constant = |text: &str, stop: bool| {
        json!({"method": "constant", "expression": text, "stop": stop,
            "targets": [{"field": "level", "overwrite": true}]})
    };
    let rules = vec![rule("a", constant("first", true)), rule("b", constant("second", false))];
    let mut batch = batch();
    ExtractionRules::new(rules, &ExtractionRules::default()).apply(&mut batch, Clients::All, 1);
    assert!(rows(&batch).iter().all(|row| row.contains(&("level", "first"))), "{:?}", rows(&batch));
}

#[test]
fn slow_rules_are_left_out() {
    let rules = ExtractionRules::new(
        vec![rule("r", json!({"method": "constant", "expression": "x", "targets": [{"field": "y"}]}))],
        &ExtractionRules::default(),
    );
    rules.apply(&mut batch(), Clients::All, 1);
    rules.rules[0].ns.store(1_000_000_000, Relaxed);
    rules.rules[0].seen.store(1000, Relaxed);
    assert_eq!(rules.apply(&mut batch(), Clients::All, 30_000), Vec::<String>::new());
    assert_eq!(rules.apply(&mut batch(), Clients::All, 61_000), ["r"]);
    let mut after = batch();
    rules.apply(&mut after, Clients::All, 62_000);
    assert!(rules.figures("r").suspended && rows(&after) == rows(&batch()));
}

/// Letters `a` and `b` as a die throws them: a pattern that counts meets ever new states.
fn thrown(bytes: usize) -> String {
    let mut state = 7_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..bytes).map(|_| letter()).collect()
}

/// What one text takes ends, says nothing about other rules, and is no work that is done again and again.
#[test]
fn a_rule_ends_at_a_text_that_takes_too_long() {
    // No letter of it is looked for ahead.
    let endless = "[ab]*a[ab]{900}[^ab]";
    let no_match = json!({"not": {"field": "_msg", "op": "regex", "value": endless}});
    let rules = ExtractionRules::new(
        vec![
            rule(
                "taken",
                json!({"method": "regex", "expression": format!("(?P<v>{endless})"), "targets": [{"field": "v", "from": "v"}]}),
            ),
            rule(
                "asked",
                json!({"method": "constant", "expression": "x", "condition": no_match, "targets": [{"field": "w"}]}),
            ),
            rule("quick", json!({"method": "constant", "expression": "x", "targets": [{"field": "x"}]})),
        ],
        &ExtractionRules::default(),
    );
    let mut batch = batch();
    let (stream, text) = (batch.push_stream(&[]), thrown(1 << 20));
    for n in 3..6 {
        batch.push_field(0, &text);
        batch.end_row(n, stream, 0, RecordMarks { severity: 9, observed: 0 });
    }
    assert!(rules.apply(&mut batch, Clients::All, 1).is_empty());
    // Records go by service: of those beside the long texts it is not known what the stopped rule would have said.
    for (row, service) in rows(&batch).iter().zip(&batch.row_services) {
        let has = |field: &str| row.iter().any(|(name, _)| *name == field);
        assert_eq!((has("v"), has("w"), has("x")), (false, *service != 0, true), "{service}");
    }
    assert_eq!(rules.apply(&mut self::batch(), Clients::All, 61_000), ["taken", "asked"]);
}

/// A record by itself, as rules saw it before they went over many at once: what they set goes before what it has.
struct Row<'a> {
    row: RowFields<'a>,
    set: Vec<(String, Option<String>)>,
}

impl Fields for Row<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let key = key_of(name);
        if let Some((_, value)) = self.set.iter().find(|(known, _)| known == key) {
            return value.as_deref().map(Cow::Borrowed);
        }
        let find = |key: &str| self.row.clone().find(|(known, _)| *known == key).map(|(_, v)| Cow::Borrowed(v));
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

/// Rules that read what others write, write over it, take it away, share tests and end the chain.
fn chain() -> Vec<Value> {
    let leaf = |field: &str, op: &str, value: Value| json!({"field": field, "op": op, "value": value});
    let took = json!({"method": "regex", "expression": "took (?P<ms>[0-9]+)(?P<unit>ms)?"});
    let with = |base: &Value, more: Value| {
        let mut body = base.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let constant = |text: &str, field: &str, more: Value| {
        let body = json!({"method": "constant", "expression": text, "targets": [{"field": field, "overwrite": true}]});
        with(&body, more)
    };
    let error = leaf("level", "eq", json!("error"));
    let unit = json!({"field": "unit", "from": "unit", "onError": "null", "overwrite": true});
    vec![
        with(&took, json!({"service": "cart", "targets": [{"field": "ms", "from": "ms", "type": "int"}, unit]})),
        with(&took, json!({"targets": [{"field": "ms", "from": "ms"}, {"field": "ms", "from": "unit"}]})),
        constant("error", "level", json!({"condition": leaf("_msg", "contains", json!("refused"))})),
        constant("yes", "failed", json!({"condition": error})),
        constant("high", "severity", json!({"condition": {"all": [leaf("severity", "regex", json!("^err")), error]}})),
        constant("last", "x", json!({"condition": leaf("severity", "eq", json!("high")), "stop": true})),
        json!({"method": "constant", "expression": "z", "condition": {"not": error}, "service": "*a*",
            "targets": [{"field": "n", "type": "int", "onError": "null", "overwrite": true}]}),
        json!({"method": "template", "expression": "{level}/{attributes.host}/{ms}", "targets": [{"field": "name"}]}),
        json!({"method": "template", "expression": "{name}", "targets": [{"field": "attributes.host"}]}),
        json!({"method": "urlPart", "source": "url", "targets": [{"field": "page", "from": "query.page"},
            {"field": "host", "from": "host"}, {"field": "q", "from": "query"}]}),
        json!({"method": "logfmt", "condition": leaf("n", "exists", json!(false)),
            "targets": [{"field": "_msg", "from": "user", "overwrite": true, "transform": "upper"}]}),
        constant("2", "n", json!({"condition": leaf("ms", "ge", json!(10))})),
        constant(
            "seen",
            "y",
            json!({"condition": {"any": [leaf("ms", "ge", json!(10)), leaf("x", "ne", json!("last"))]}}),
        ),
        // Enough that is looked for in messages that all is looked for at once, before and after one is written over.
        constant("t", "took", json!({"condition": leaf("_msg", "contains", json!("took "))})),
        constant("code 7 refused", "_msg", json!({"condition": leaf("_msg", "endsWith", json!("2ms"))})),
        constant(
            "c",
            "code",
            json!({"condition": {"any": [leaf("_msg", "startsWith", json!("code")),
            {"all": [leaf("_msg", "regex", json!("(error|took) ?")), leaf("level", "exists", json!(true))]}]}}),
        ),
    ]
}

const NAMES: [&str; 8] = ["_msg", "level", "severity_text", "host", "url", "n", "other", "severity"];
const VALUES: [&str; 9] =
    ["took 12ms", "took 7 s", "code 5 refused", "error", "info", "", "user=ann x=1", "https://a.b/c?page=3&d=1", "3"];

/// What a batch becomes where each record goes through all rules by itself, and what each rule did.
fn one_by_one(batch: &LogsBatch, rules: &ExtractionRules) -> (Vec<Vec<(String, String)>>, Vec<RuleCounts>) {
    let mut figures = vec![RuleCounts::default(); rules.rules.len()];
    let each = (0..batch.len()).map(|row| {
        let mut record = Row { row: batch.row(row), set: Vec::new() };
        let service = &batch.services[batch.row_services[row] as usize];
        for (n, running) in rules.rules.iter().enumerate().filter(|(_, r)| r.rule.is_for(service)) {
            let applied = running.rule.apply(&mut record);
            figures[n].seen += 1;
            figures[n].matched += u64::from(applied.matched);
            figures[n].failed += applied.errors.len() as u64;
            if applied.matched && running.rule.stop {
                break;
            }
        }
        let set = record.set;
        let kept = batch.row(row).filter(|(name, _)| set.iter().all(|(field, _)| field != name));
        let mut all: Vec<_> = kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.extend(set.into_iter().filter_map(|(name, value)| Some((name, value.filter(|v| !v.is_empty())?))));
        all
    });
    (each.collect(), figures)
}

proptest! {
    /// Rules over a batch do what each of them does to each record.
    #[test]
    fn batches_become_what_their_records_do(
        chosen in subsequence((0..16).collect::<Vec<usize>>(), 0..=16).prop_shuffle(),
        records in vec((0..3_u32, vec((0..NAMES.len(), 0..VALUES.len()), 0..6)), 1..40),
        repeats in prop_oneof![20 => Just(1), 1 => Just(70)],
    ) {
        let bodies = chain();
        let compiled = chosen.iter().map(|n| rule(&n.to_string(), bodies[*n].clone())).collect();
        let rules = ExtractionRules::new(compiled, &ExtractionRules::default());
        let mut batch = LogsBatch {
            names: NAMES.iter().map(|name| Arc::from(*name)).collect(),
            services: vec!["cart".into(), "".into(), "pay".into()],
            ..LogsBatch::default()
        };
        let stream = batch.push_stream(&[]);
        for (n, (service, fields)) in std::iter::repeat_n(&records, repeats).flatten().enumerate() {
            for (name, value) in fields {
                batch.push_field(*name as u32, VALUES[*value]);
            }
            batch.end_row(n as i64, stream, *service, RecordMarks { severity: (n % 3) as u8, observed: 0 });
        }
        let (expected, figures) = one_by_one(&batch, &rules);
        let (time, severity) = (batch.time.clone(), batch.severity.clone());
        rules.apply(&mut batch, Clients::All, 1);
        prop_assert_eq!((&batch.time, &batch.severity), (&time, &severity));
        for (row, expected) in expected.iter().enumerate() {
            let found: Vec<_> = batch.row(row).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(&found, expected, "record {}", row);
        }
        for (n, expected) in chosen.iter().zip(figures) {
            let found = rules.figures(&n.to_string());
            prop_assert_eq!((found.seen, found.matched, found.failed), (expected.seen, expected.matched, expected.failed));
        }
    }
}
