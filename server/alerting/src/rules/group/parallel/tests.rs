use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use quiver_types::LabelSet;
use quiver_yaml::problem::Place as TextPlace;

use super::*;
use crate::rules::{Element, ElementValue, Health, Language, RuleGroup, RuleSample};

/// An expression is the names of the metrics that it reads; `?` reads anything, `panic` panics.
#[derive(Debug, Default)]
struct Words {
    running: AtomicUsize,
    most: AtomicUsize,
    /// Expressions and names of what is written, as they came.
    told: Mutex<Vec<String>>,
}

impl Engine for Words {
    fn query(&self, _: usize, _: Language, expr: &str, _: Millis) -> Result<Vec<Element>, String> {
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        self.running.fetch_sub(1, SeqCst);
        assert_ne!(expr, "panic");
        self.told.lock().unwrap().push(format!("read {expr}"));
        Ok(vec![Element { labels: LabelSet::default(), value: ElementValue::Float(1.0) }])
    }

    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        self.told.lock().unwrap().extend(samples.iter().map(|s| format!("write {}", s.labels.metric())));
        Ok(())
    }

    fn reads(&self, _: Language, expr: &str) -> Reads {
        let selector = |name: &str| match name.split_once('=') {
            Some((label, value)) => vec![Matcher::equal(label, value)],
            None => vec![Matcher::equal(METRIC_NAME, name)],
        };
        if expr == "?" { Reads::Anything } else { Reads::Series(expr.split_whitespace().map(selector).collect()) }
    }
}

/// A group of recording rules, and alerting ones where a name begins with a capital letter.
fn group(rules: &[(&str, &str)]) -> Group {
    let rule = |&(name, expr): &(&str, &str)| Rule {
        place: TextPlace::default(),
        kind: if name.starts_with(char::is_uppercase) { RuleKind::Alert } else { RuleKind::Record },
        name: name.trim_end_matches(char::is_numeric).to_owned(),
        expr: expr.to_owned(),
        expr_place: TextPlace::default(),
        language: Language::Promql,
        for_ms: 0,
        keep_firing_for_ms: 0,
        labels: [("n".to_owned(), name.trim_start_matches(char::is_alphabetic).to_owned())].into(),
        annotations: BTreeMap::new(),
        enabled: true,
        service_yields: false,
    };
    let model = RuleGroup {
        place: TextPlace::default(),
        namespace: None,
        name: "g".to_owned(),
        interval_ms: Some(60_000),
        query_offset_ms: None,
        eval_offset_ms: None,
        limit: 0,
        concurrency: Some(4),
        language: Language::Promql,
        labels: BTreeMap::new(),
        params: BTreeMap::new(),
        rules: rules.iter().map(rule).collect(),
    };
    Group::new(model, 60_000)
}

fn evaluate(group: Group, engine: &Words, threads: usize) -> Option<Group> {
    let cycle = group.begin(60_000, engine);
    let setting = EvaluationSettings::default();
    let work = || cycle.evaluate_rules(&setting, engine);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in all {
            drop(thread.join());
        }
    });
    cycle.finish(engine)
}

#[test]
fn who_waits_for_whom() {
    let check = |rules: &[(&str, &str)], expected: &[u64]| {
        assert_eq!(&waits_of(&group(rules).rules, &Words::default())[..], expected, "{rules:?}");
    };
    check(&[("a", "x"), ("b", "y"), ("A", "z")], &[0, 0, 0]);
    // What it reads is written by the first one; what it writes is read by it.
    check(&[("a", "x"), ("b", "y"), ("c", "a")], &[0, 0, 0b10]);
    check(&[("a", "c"), ("b", "y"), ("c", "x")], &[0, 0, 0b10]);
    check(&[("a", "x"), ("b", "?"), ("c", "y")], &[0, 1, 1]);
    // The same series, unless a label tells them apart.
    check(&[("a", "x"), ("a", "y"), ("a1", "y"), ("a2", "y")], &[0, 1, 0, 0]);
    // Alerts write series, too.
    check(&[("A", "x"), ("B", "ALERTS"), ("C", "alertname=A")], &[0, 1, 0b11]);
    check(&[("A1", "x"), ("B", "n=2"), ("a", "n=1")], &[0, 0, 0b10]);
    let mut asking = group(&[("a", "x"), ("A", "y")]);
    asking.rules[1].rule.annotations = [("s".to_owned(), "{{ query \"a\" }}".to_owned())].into();
    assert_eq!(waits_of(&asking.rules, &Words::default())[..], [0, 1]);
}

#[test]
fn results_are_those_of_one_after_the_other() {
    let rules = [("a", "x"), ("b", "y"), ("c", "a b"), ("A", "z"), ("d", "c"), ("a", "w")];
    let (engine, alone) = (Words::default(), Words::default());
    let at_once = evaluate(group(&rules), &engine, 4).unwrap();
    let mut one = group(&rules);
    one.evaluate(60_000, &EvaluationSettings::default(), &alone);
    assert!(engine.most.load(SeqCst) > 1, "nothing ran at once");
    assert_eq!(alone.most.load(SeqCst), 1);
    one.waits = at_once.waits.clone();
    assert_eq!(at_once, one);
    assert!(at_once.rules.iter().all(|status| status.health == Health::Ok));
    let told = engine.told.lock().unwrap().clone();
    let place = |text: &str| told.iter().position(|t| t == text).unwrap_or_else(|| panic!("{text} in {told:?}"));
    assert!(place("write a").max(place("write b")) < place("read a b"));
    assert!(place("write c") < place("read c"));
    // It writes what the first one writes, and the third one reads that of the first.
    assert!(place("read a b") < place("read w"));
    // A second cycle works like the first, also with one thread.
    assert_eq!(evaluate(at_once, &engine, 1).unwrap().evaluations, 2);
}

#[test]
fn many_rules_and_a_fault() {
    let names: Vec<String> = (0..200).map(|n| format!("a{n}")).collect();
    let rules: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let engine = Words::default();
    let done = evaluate(group(&rules), &engine, 8).unwrap();
    assert_eq!(done.rules.iter().filter(|status| status.health == Health::Ok).count(), 200);
    assert_eq!(done.rules[199].rule.labels["n"], "199");
    assert!(engine.most.load(SeqCst) <= 8);
    // Whoever waits for the one that fell goes on.
    assert!(evaluate(group(&[("a", "panic"), ("b", "a"), ("c", "y")]), &engine, 2).is_none());
}
