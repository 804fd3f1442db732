use std::cell::RefCell;

use super::super::{Element, GRACE_MS, Language, Remembered};
use super::*;
use crate::problem::Place;

/// Answers with the elements that a script says for each time, and keeps what is written.
#[derive(Default)]
struct Script {
    hits: BTreeMap<Millis, Vec<(&'static str, f64)>>,
    fails: Vec<Millis>,
    written: RefCell<Vec<String>>,
}

impl Engine for Script {
    fn query(&self, _: usize, _: Language, _: &str, at: Millis) -> Result<Vec<Element>, String> {
        if self.fails.contains(&at) {
            return Err("no answer".to_owned());
        }
        let element = |(i, value): &(&str, f64)| Element {
            labels: LabelSet::from_pairs([("__name__", "m"), ("i", i)]),
            value: ElementValue::Float(*value),
        };
        Ok(self.hits.get(&at).into_iter().flatten().map(element).collect())
    }

    fn write(&self, samples: &[Written]) -> Result<(), String> {
        for sample in samples {
            let ElementValue::Float(value) = sample.value else { continue };
            let value = if quiver_types::is_stale(value) { "stale".to_owned() } else { value.to_string() };
            let labels = super::super::evaluate::show_labels(&sample.labels);
            self.written.borrow_mut().push(format!("{labels} {value} @{}", sample.ts / 60_000));
        }
        Ok(())
    }
}

const MINUTE: Millis = 60_000;

fn group(for_minutes: i64, keep_minutes: i64) -> Group {
    let rule = Rule {
        place: Place::default(),
        kind: RuleKind::Alert,
        name: "A".to_owned(),
        expr: "m > 1".to_owned(),
        expr_place: Place::default(),
        language: Language::Promql,
        for_ms: for_minutes * MINUTE,
        keep_firing_for_ms: keep_minutes * MINUTE,
        labels: [("sev".to_owned(), "{{ $labels.i }}-x".to_owned())].into(),
        annotations: [("v".to_owned(), "{{ $value }}".to_owned())].into(),
        enabled: true,
        service_yields: false,
    };
    let model = RuleGroup {
        place: Place::default(),
        namespace: None,
        name: "g".to_owned(),
        interval_ms: Some(MINUTE),
        query_offset_ms: None,
        eval_offset_ms: None,
        limit: 0,
        concurrency: None,
        language: Language::Promql,
        labels: BTreeMap::new(),
        params: BTreeMap::new(),
        rules: vec![rule],
    };
    Group::new(model, MINUTE)
}

/// Says for each minute whether the expression hits; gives the state after each.
fn states(group: &mut Group, hits: &str) -> String {
    let mut script = Script::default();
    for (i, c) in hits.chars().enumerate() {
        let at = i as Millis * MINUTE;
        match c {
            '+' => drop(script.hits.insert(at, vec![("1", 2.0)])),
            '!' => script.fails.push(at),
            _ => {}
        }
    }
    let mut out = String::new();
    for i in 0..hits.len() {
        group.evaluate(i as Millis * MINUTE, &Setting::default(), &script);
        out.push(match group.rules[0].state() {
            AlertState::Firing => 'f',
            AlertState::Pending => 'p',
            AlertState::Inactive => '.',
        });
    }
    out
}

#[test]
fn states_over_time() {
    let check =
        |for_, keep, hits: &str, expected: &str| assert_eq!(states(&mut group(for_, keep), hits), expected, "{hits}");
    check(0, 0, "-+-+", ".f.f");
    check(2, 0, "+++++-+", "ppfff.p");
    check(2, 0, "++-+++", "pp.ppf");
    check(0, 3, "+----+-", "ffff.ff");
    check(2, 3, "+-", "p.");
    check(1, 0, "++!!-", "pfff.");
}

#[test]
fn what_is_written() {
    let mut group = group(1, 0);
    let script = Script { hits: [(0, vec![("1", 2.0)]), (MINUTE, vec![("1", 3.0)])].into(), ..Script::default() };
    (0..3).for_each(|i| group.evaluate(i * MINUTE, &Setting::default(), &script));
    let series = |state: &str| format!("ALERTS{{alertname=\"A\", alertstate=\"{state}\", i=\"1\", sev=\"1-x\"}}");
    let since = "ALERTS_FOR_STATE{alertname=\"A\", i=\"1\", sev=\"1-x\"}";
    let expected = [
        format!("{} 1 @0", series("pending")),
        format!("{since} 0 @0"),
        format!("{} 1 @1", series("firing")),
        format!("{since} 0 @1"),
        format!("{} stale @1", series("pending")),
        format!("{} stale @2", series("firing")),
        format!("{since} stale @2"),
    ];
    assert_eq!(*script.written.borrow(), expected);
    assert_eq!(group.rules[0].alerts().next().map(|a| a.annotations["v"].clone()), Some("3".to_owned()));
}

#[test]
fn equal_alerts_and_limits_are_errors() {
    let mut one = group(0, 0);
    one.rules[0].rule.labels = [("i".to_owned(), "same".to_owned()), ("sev".to_owned(), String::new())].into();
    let script = Script { hits: [(0, vec![("1", 2.0), ("2", 2.0)])].into(), ..Script::default() };
    one.evaluate(0, &Setting::default(), &script);
    assert!(matches!(&one.rules[0].health, Health::Err(e) if e.contains("same labelset")));
    assert_eq!(one.rules[0].state(), AlertState::Inactive);
    let mut limited = group(0, 0);
    limited.model.limit = 1;
    limited.evaluate(0, &Setting::default(), &script);
    assert_eq!(limited.rules[0].health, Health::Err("exceeded limit of 1 with 2 alerts".to_owned()));
    assert_eq!(limited.rules[0].alerts().count(), 0);
}

#[test]
fn sent_again_and_to_the_end() {
    let mut group = group(0, 0);
    let script = Script { hits: (0..3).map(|i| (i * MINUTE, vec![("1", 2.0)])).collect(), ..Script::default() };
    let mut sent = Vec::new();
    for i in 0..25 {
        group.evaluate(i * MINUTE, &Setting::default(), &script);
        sent.extend(
            group
                .send(i * MINUTE, 2 * MINUTE, 60 * MINUTE)
                .into_iter()
                .map(|s| (i, s.alert.state == AlertState::Firing)),
        );
    }
    let firing: Vec<i64> = sent.iter().filter(|s| s.1).map(|s| s.0).collect();
    let ended: Vec<i64> = sent.iter().filter(|s| !s.1).map(|s| s.0).collect();
    assert_eq!(firing, [0]);
    assert_eq!(ended, [3, 6, 9, 12, 15, 18]);
}

#[test]
fn raised_for_turns_firing_to_pending_and_edits_keep_alerts() {
    let mut first = group(0, 0);
    assert_eq!(states(&mut first, "+"), "f");
    let mut edited = group(5, 0);
    edited.take_over(first);
    let script = Script { hits: (1..8).map(|i| (i * MINUTE, vec![("1", 2.0)])).collect(), ..Script::default() };
    edited.evaluate(MINUTE, &Setting::default(), &script);
    assert_eq!(edited.rules[0].state(), AlertState::Pending);
    edited.evaluate(5 * MINUTE, &Setting::default(), &script);
    assert_eq!(edited.rules[0].state(), AlertState::Firing);
}

#[test]
fn an_edited_rule_goes_on_writing_its_series() {
    let mut first = group(0, 0);
    assert_eq!(states(&mut first, "+"), "f");
    let mut edited = group(0, 0);
    edited.rules[0].rule.expr = "m > 0".to_owned();
    let gone = edited.take_over(first);
    assert_eq!((gone.len(), gone[0].1.alerts().count()), (1, 1));
    let script = Script { hits: [(MINUTE, vec![("1", 2.0)])].into(), ..Script::default() };
    edited.evaluate(MINUTE, &Setting::default(), &script);
    assert!(script.written.borrow().iter().all(|w| !w.contains("stale")), "{:?}", script.written.borrow());
    edited.evaluate(2 * MINUTE, &Setting::default(), &script);
    assert_eq!(script.written.borrow().iter().filter(|w| w.contains("stale @2")).count(), 2);
}

#[test]
fn restored() {
    let labels = LabelSet::from_pairs([("alertname", "A"), ("i", "1"), ("sev", "1-x")]);
    let check = |for_: i64, active: i64, last: i64, now: i64, firing: bool, expected: Option<i64>| {
        let mut group = group(for_, 0);
        let alert = Remembered {
            labels: labels.clone(),
            annotations: BTreeMap::new(),
            value: 1.0,
            firing,
            active_at: active * MINUTE,
            fired_at: firing.then_some(active * MINUTE),
            period: None,
            keep_firing_since: None,
            last_sent_at: None,
        };
        group.restore(0, vec![alert], last * MINUTE, now * MINUTE);
        let got = group.rules[0].alerts().next().map(|a| a.active_at / MINUTE);
        assert_eq!(got, expected, "for {for_} active {active} last {last} now {now}");
        group
    };
    check(5, 0, 3, 10, false, Some(0));
    check(20, 0, 5, 15, false, Some(10));
    check(20, 0, 15, 20, false, Some(20 + GRACE_MS / MINUTE - 20));
    check(20, 0, 5, 70, false, None);
    let mut firing = check(5, 0, 30, 40, true, Some(0));
    // The first cycle ends nothing that was restored, the second one does.
    let script = Script::default();
    firing.evaluate(40 * MINUTE, &Setting::default(), &script);
    assert_eq!(firing.rules[0].state(), AlertState::Firing);
    firing.evaluate(41 * MINUTE, &Setting::default(), &script);
    assert_eq!(firing.rules[0].state(), AlertState::Inactive);
}

#[test]
fn phases_spread_and_offsets_hold() {
    let mut group = group(0, 0);
    let due = group.due_at(1_000_000_000);
    assert!(due <= 1_000_000_000 && due > 1_000_000_000 - MINUTE);
    assert_eq!(group.due_at(due + MINUTE), due + MINUTE);
    group.model.eval_offset_ms = Some(10_000);
    assert_eq!(group.due_at(125_000), 70_000);
    assert_eq!(group.due_at(130_000), 130_000);
}

#[test]
fn a_rule_that_is_switched_off_ends_its_alerts() {
    let mut group = group(0, 10);
    assert_eq!(states(&mut group, "+"), "f");
    group.rules[0].rule.enabled = false;
    let script = Script::default();
    group.evaluate(MINUTE, &Setting::default(), &script);
    assert_eq!(group.rules[0].state(), AlertState::Inactive);
    assert_eq!(script.written.borrow().len(), 2);
    assert_eq!(group.send(MINUTE, MINUTE, 60 * MINUTE).len(), 1);
}

#[test]
fn a_rule_that_fails_holds_its_alerts_for_a_while() {
    let mut group = group(0, 0);
    let mut script = Script { hits: [(0, vec![("1", 2.0)])].into(), ..Script::default() };
    group.evaluate(0, &Setting::default(), &script);
    script.fails = (1..100).map(|i| i * MINUTE).collect();
    let mut sent = Vec::new();
    for i in 0..6 {
        group.evaluate(i * MINUTE, &Setting::default(), &script);
        sent.push(group.send(i * MINUTE, 0, 3 * MINUTE).len());
    }
    assert_eq!(sent, [1, 1, 1, 1, 1, 0]);
}

#[test]
fn a_leap_of_the_clock_lets_nothing_fire() {
    let mut group = group(5, 0);
    let leap = 60 * MINUTE;
    let hits = [0, MINUTE + leap, 5 * MINUTE + leap].map(|at| (at, vec![("1", 2.0)]));
    let script = Script { hits: hits.into(), ..Script::default() };
    let state = |group: &mut Group, at| {
        group.evaluate(at, &Setting::default(), &script);
        group.rules[0].state()
    };
    assert_eq!(state(&mut group, 0), AlertState::Pending);
    group.shift(leap);
    assert_eq!(state(&mut group, MINUTE + leap), AlertState::Pending);
    assert_eq!(state(&mut group, 5 * MINUTE + leap), AlertState::Firing);
    assert_eq!(group.rules[0].remembered()[0].active_at, leap);
}
