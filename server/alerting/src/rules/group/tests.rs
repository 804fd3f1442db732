use std::cell::RefCell;

use quiver_types::Matcher;
use quiver_yaml::problem::Place;

use super::super::{ERROR_TEMPLATE, Element, GRACE_MS, Language, NewestSample, Room, StoredAlert};
use super::*;

/// Answers with the elements that a script says for each time, and keeps what is written.
#[derive(Default)]
struct Script {
    hits: BTreeMap<Millis, Vec<(&'static str, f64)>>,
    fails: Vec<Millis>,
    written: RefCell<Vec<String>>,
    /// The `i` for which nothing may be written.
    not_ours: Option<&'static str>,
    /// Newest samples: the alert's `i`, when, and since when it was active, in minutes.
    before: Vec<(&'static str, Millis, Millis)>,
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

    fn may_write(&self, _: usize, labels: &LabelSet) -> bool {
        self.not_ours.is_none_or(|i| labels.get("i") != i)
    }

    fn newest(
        &self,
        _: usize,
        matchers: &[Matcher],
        (from, to): (Millis, Millis),
    ) -> Result<Vec<NewestSample>, String> {
        let sample = |&(i, at, since): &(&str, Millis, Millis)| {
            let sev = format!("{i}-x");
            let pairs = [("__name__", "ALERTS_FOR_STATE"), ("alertname", "A"), ("i", i), ("sev", sev.as_str())];
            (LabelSet::from_pairs(pairs), at * MINUTE, (since * MINUTE / 1000) as f64)
        };
        let fits = |(labels, at, _): &NewestSample| {
            (from..=to).contains(at) && matchers.iter().all(|m| m.matches(labels.get(&m.name)))
        };
        Ok(self.before.iter().map(sample).filter(fits).collect())
    }

    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        for sample in samples {
            let ElementValue::Float(value) = sample.value else { continue };
            let value = if quiver_types::is_stale(value) { "stale".to_owned() } else { value.to_string() };
            let labels = show_labels(&sample.labels);
            self.written.borrow_mut().push(format!("{labels} {value} @{}", sample.ts / 60_000));
        }
        Ok(())
    }
}

/// Writes labels as `name{a="b"}`.
fn show_labels(labels: &LabelSet) -> String {
    let mut rest = labels.iter().filter(|(name, _)| *name != "__name__").peekable();
    if rest.peek().is_none() && !labels.metric().is_empty() {
        return labels.metric().to_owned();
    }
    labels.metric().to_owned() + &crate::rules::show_pairs(rest)
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
        group.evaluate(i as Millis * MINUTE, &EvaluationSettings::default(), &script);
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
    (0..3).for_each(|i| group.evaluate(i * MINUTE, &EvaluationSettings::default(), &script));
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

/// Labels decide whose alerts and series are: a rule that names a service of others fails as a whole.
#[test]
fn what_is_not_ours_is_not_written() {
    let hits = [(0, vec![("1", 2.0)]), (MINUTE, vec![("1", 3.0), ("2", 3.0)])];
    let script = || Script { hits: hits.clone().into(), not_ours: Some("2"), ..Script::default() };
    let (mut alerts, of_alerts) = (group(0, 0), script());
    let (mut series, of_series) = (group(0, 0), script());
    (series.rules[0].rule.kind, series.rules[0].rule.labels) = (RuleKind::Record, BTreeMap::new());
    for (group, script) in [(&mut alerts, &of_alerts), (&mut series, &of_series)] {
        group.evaluate(0, &EvaluationSettings::default(), script);
        assert_eq!(group.rules[0].health, Health::Ok);
        group.evaluate(MINUTE, &EvaluationSettings::default(), script);
        assert!(matches!(&group.rules[0].health, Health::Err(e) if e.contains("{edit, alerting}")));
        let written = script.written.borrow();
        assert!(!written.is_empty() && !written.iter().any(|line| line.contains("i=\"2\"")), "{written:?}");
    }
}

#[test]
fn equal_alerts_and_limits_are_errors() {
    let mut one = group(0, 0);
    one.rules[0].rule.labels = [("i".to_owned(), "same".to_owned()), ("sev".to_owned(), String::new())].into();
    let script = Script { hits: [(0, vec![("1", 2.0), ("2", 2.0)])].into(), ..Script::default() };
    one.evaluate(0, &EvaluationSettings::default(), &script);
    assert!(matches!(&one.rules[0].health, Health::Err(e) if e.contains("same labelset")));
    assert_eq!(one.rules[0].state(), AlertState::Inactive);
    let mut limited = group(0, 0);
    limited.model.limit = 1;
    limited.evaluate(0, &EvaluationSettings::default(), &script);
    assert_eq!(limited.rules[0].health, Health::Err("exceeded limit of 1 with 2 alerts".to_owned()));
    assert_eq!(limited.rules[0].alerts().count(), 0);
}

#[test]
fn sent_again_and_to_the_end() {
    let mut group = group(0, 0);
    let script = Script { hits: (0..3).map(|i| (i * MINUTE, vec![("1", 2.0)])).collect(), ..Script::default() };
    let mut sent = Vec::new();
    for i in 0..25 {
        group.evaluate(i * MINUTE, &EvaluationSettings::default(), &script);
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
    edited.evaluate(MINUTE, &EvaluationSettings::default(), &script);
    assert_eq!(edited.rules[0].state(), AlertState::Pending);
    edited.evaluate(5 * MINUTE, &EvaluationSettings::default(), &script);
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
    edited.evaluate(MINUTE, &EvaluationSettings::default(), &script);
    assert!(script.written.borrow().iter().all(|w| !w.contains("stale")), "{:?}", script.written.borrow());
    edited.evaluate(2 * MINUTE, &EvaluationSettings::default(), &script);
    assert_eq!(script.written.borrow().iter().filter(|w| w.contains("stale @2")).count(), 2);
}

#[test]
fn restored() {
    let labels = LabelSet::from_pairs([("alertname", "A"), ("i", "1"), ("sev", "1-x")]);
    let check = |for_: i64, active: i64, last: i64, now: i64, firing: bool, expected: Option<i64>| {
        let mut group = group(for_, 0);
        let alert = StoredAlert {
            labels: labels.clone(),
            annotations: Arc::default(),
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
    firing.evaluate(40 * MINUTE, &EvaluationSettings::default(), &script);
    assert_eq!(firing.rules[0].state(), AlertState::Firing);
    firing.evaluate(41 * MINUTE, &EvaluationSettings::default(), &script);
    assert_eq!(firing.rules[0].state(), AlertState::Inactive);
}

/// Where nothing was kept, the series that were written say since when alerts are active.
#[test]
fn adopted_from_series() {
    let check = |for_: i64, adopts: bool, before: (Millis, Millis), expected: (AlertState, Millis)| {
        let mut group = group(for_, 0);
        if adopts {
            group.adopt();
        }
        let at = 100 * MINUTE;
        let hits = [at, at + MINUTE].map(|at| (at, vec![("1", 2.0)]));
        let script = Script { hits: hits.into(), before: vec![("1", before.0, before.1)], ..Script::default() };
        group.evaluate(at, &EvaluationSettings::default(), &script);
        let alert = group.rules[0].alerts().next().unwrap();
        assert_eq!((alert.state, alert.active_at / MINUTE), expected, "for {for_} before {before:?}");
        // Only the first evaluation looks.
        group.evaluate(at + MINUTE, &EvaluationSettings::default(), &script);
        assert_eq!(group.rules[0].alerts().count(), 1);
        group.rules[0].alerts().next().and_then(|alert| alert.fired_at)
    };
    // It fired, and goes on with its start.
    assert_eq!(check(5, true, (95, 80), (AlertState::Firing, 80)), Some(85 * MINUTE));
    // It was pending: a short `for` counts the time down, a long one does not.
    assert_eq!(check(5, true, (98, 94), (AlertState::Firing, 94)), Some(100 * MINUTE));
    check(8, true, (98, 94), (AlertState::Pending, 94));
    check(30, true, (95, 90), (AlertState::Pending, 95));
    // Too long ago, of another alert, or not asked for.
    check(5, true, (39, 10), (AlertState::Pending, 100));
    check(5, false, (95, 80), (AlertState::Pending, 100));
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
    // Below zero: before the end of the interval, as in vmalert.
    group.model.eval_offset_ms = Some(-10_000);
    assert_eq!((group.due_at(109_999), group.due_at(110_000)), (50_000, 110_000));
}

#[test]
fn a_rule_that_is_switched_off_ends_its_alerts() {
    let mut group = group(0, 10);
    assert_eq!(states(&mut group, "+"), "f");
    group.rules[0].rule.enabled = false;
    let script = Script::default();
    group.evaluate(MINUTE, &EvaluationSettings::default(), &script);
    assert_eq!(group.rules[0].state(), AlertState::Inactive);
    assert_eq!(script.written.borrow().len(), 2);
    assert_eq!(group.send(MINUTE, MINUTE, 60 * MINUTE).len(), 1);
}

/// Without a cycle of the group: the next one may be an hour away.
#[test]
fn what_a_disabled_rule_left_ends_at_once() {
    let mut group = group(0, 10);
    assert_eq!(states(&mut group, "+"), "f");
    let (script, evaluations) = (Script::default(), group.evaluations);
    group.end_disabled_rules(MINUTE, &script);
    assert_eq!((group.rules[0].state(), group.has_left()), (AlertState::Firing, false), "it is not disabled");
    group.rules[0].rule.enabled = false;
    assert!(group.has_left());
    group.end_disabled_rules(MINUTE, &script);
    assert_eq!((group.rules[0].state(), group.has_left()), (AlertState::Inactive, false));
    assert!(script.written.borrow().iter().all(|sample| sample.contains("stale @1")), "{:?}", script.written);
    assert_eq!(group.send(MINUTE, MINUTE, 60 * MINUTE).len(), 1);
    // Nothing ends twice, and no rule was evaluated for it.
    group.end_disabled_rules(2 * MINUTE, &script);
    assert_eq!((script.written.borrow().len(), group.evaluations), (2, evaluations));
}

/// Nobody was told of it, so nobody is told that it is over.
#[test]
fn a_pending_alert_of_a_disabled_rule_goes() {
    let mut group = group(5, 10);
    assert_eq!(states(&mut group, "+"), "p");
    group.rules[0].rule.enabled = false;
    assert!(group.has_left());
    group.end_disabled_rules(MINUTE, &Script::default());
    assert_eq!(group.rules[0].alerts().count(), 0);
    assert!(group.send(MINUTE, MINUTE, 60 * MINUTE).is_empty());
}

#[test]
fn a_rule_that_fails_holds_its_alerts_for_a_while() {
    let mut group = group(0, 0);
    let mut script = Script { hits: [(0, vec![("1", 2.0)])].into(), ..Script::default() };
    group.evaluate(0, &EvaluationSettings::default(), &script);
    script.fails = (1..100).map(|i| i * MINUTE).collect();
    let mut sent = Vec::new();
    for i in 0..6 {
        group.evaluate(i * MINUTE, &EvaluationSettings::default(), &script);
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
        group.evaluate(at, &EvaluationSettings::default(), &script);
        group.rules[0].state()
    };
    assert_eq!(state(&mut group, 0), AlertState::Pending);
    group.shift(leap);
    assert_eq!(state(&mut group, MINUTE + leap), AlertState::Pending);
    assert_eq!(state(&mut group, 5 * MINUTE + leap), AlertState::Firing);
    assert_eq!(group.rules[0].remembered()[0].active_at, leap);
}

/// A clock that was set back while the server was down: what fires goes on firing, what is pending has waited as before.
#[test]
fn restored_alerts_of_a_future() {
    const DAYS: Millis = 40 * 24 * 60 * MINUTE;
    let (now, last) = (DAYS, 2 * DAYS);
    let remembered = |i: &str, firing: bool, active_at: Millis| StoredAlert {
        labels: LabelSet::from_pairs([("alertname", "A"), ("i", i), ("sev", &format!("{i}-x"))]),
        annotations: Arc::default(),
        value: 2.0,
        firing,
        active_at,
        fired_at: firing.then_some(active_at + 20 * MINUTE),
        period: None,
        keep_firing_since: None,
        last_sent_at: None,
    };
    let mut group = group(20, 0);
    let alerts = vec![remembered("1", true, last - 30 * MINUTE), remembered("2", false, last - 5 * MINUTE)];
    group.restore(0, alerts, last, now);
    let script = Script { hits: [(now, vec![("1", 2.0), ("2", 2.0)])].into(), ..Script::default() };
    group.evaluate(now, &EvaluationSettings::default(), &script);
    let shown: Vec<_> =
        group.rules[0].alerts().map(|a| (a.state, now - a.active_at, a.fired_at.map(|at| now - at))).collect();
    let fires = (AlertState::Firing, 30 * MINUTE, Some(10 * MINUTE));
    assert_eq!(shown, [fires, (AlertState::Pending, 5 * MINUTE, None)]);
    let period = group.rules[0].alerts().next().and_then(|alert| alert.period);
    assert_eq!(period, Some(last - 10 * MINUTE), "it is called as before");
}

/// How long a rule has failed does not change with the clock: its alerts neither end nor fire for ever.
#[test]
fn a_leap_of_the_clock_lets_nothing_fail_for_longer() {
    for leap in [100_000 * MINUTE, -100_000 * MINUTE] {
        let mut group = group(0, 0);
        let start = 200_000 * MINUTE;
        let fails = [start + MINUTE, start + leap + 2 * MINUTE, start + leap + 5 * MINUTE];
        let script = Script { hits: [(start, vec![("1", 2.0)])].into(), fails: fails.into(), ..Script::default() };
        group.evaluate(start, &EvaluationSettings::default(), &script);
        group.evaluate(fails[0], &EvaluationSettings::default(), &script);
        group.shift(leap);
        let mut sent = Vec::new();
        for at in &fails[1..] {
            group.evaluate(*at, &EvaluationSettings::default(), &script);
            sent.push(group.send(*at, 0, 3 * MINUTE).len());
        }
        assert_eq!(sent, [1, 0], "{leap}");
    }
}

/// As many results as wanted. If time passes, it is a second whenever somebody asks.
struct Many {
    first: usize,
    results: usize,
    passes: bool,
    passed: std::cell::Cell<u64>,
}

impl Many {
    fn of(results: usize) -> Self {
        Self { first: 0, results, passes: true, passed: std::cell::Cell::new(0) }
    }
}

impl Engine for Many {
    fn query(&self, _: usize, _: Language, _: &str, _: Millis) -> Result<Vec<Element>, String> {
        let labels = |n: usize| LabelSet::from_pairs([("i", (self.first + n).to_string().as_str())]);
        Ok((0..self.results).map(|n| Element { labels: labels(n), value: ElementValue::Float(1.0) }).collect())
    }

    fn write(&self, _: &[RuleSample]) -> Result<(), String> {
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.passed.set(self.passed.get() + u64::from(self.passes));
        Duration::from_secs(self.passed.get())
    }
}

/// A template is bounded, but not how many results it is run for: with 100,000 it could run for hours, and nobody else.
#[test]
fn texts_take_no_longer_than_the_interval() {
    let (mut group, setting) = (group(0, 0), EvaluationSettings::default());
    let mut evaluate = |results: usize, at: Millis| {
        group.evaluate(at, &setting, &Many::of(results));
        let told = match &group.rules[0].health {
            Health::Err(error) => error.clone(),
            _ => String::new(),
        };
        (group.rules[0].alerts().count(), told)
    };
    assert_eq!(evaluate(5, 0), (5, String::new()));
    let (left, told) = evaluate(100, MINUTE);
    assert!(told.contains("takes longer than the interval") && left == 5, "{left} {told}");
    // Labels are made in time, annotations are not: nothing changes all the same.
    let (left, told) = evaluate(20, 2 * MINUTE);
    assert!(told.contains("takes longer than the interval") && left == 5, "{left} {told}");
}

/// Nor how much memory all their texts take.
#[test]
fn texts_take_no_more_memory_than_there_is() {
    const RESULTS: usize = 10;
    let setting = EvaluationSettings { room: Room::new(120_000), ..EvaluationSettings::default() };
    let evaluate = |group: &mut Group, length: usize| {
        group.rules[0].rule.annotations = [("v".to_owned(), "x".repeat(length))].into();
        group.evaluate(0, &setting, &Many::of(RESULTS));
        (group.rules[0].health.clone(), group.rules[0].alerts().count())
    };
    let is_refused = |(health, alerts): (Health, usize)| {
        matches!(health, Health::Err(told) if told.contains("too much memory")) && alerts == RESULTS
    };
    let (mut first, mut second) = (group(0, 0), group(0, 0));
    assert_eq!(evaluate(&mut first, 1000), (Health::Ok, RESULTS));
    assert!(is_refused(evaluate(&mut first, 20_000)), "the former ones stay");
    assert_eq!(evaluate(&mut first, 6000), (Health::Ok, RESULTS));
    let copy = first.clone();
    assert_eq!(evaluate(&mut second, 2000), (Health::Ok, RESULTS), "a copy takes nothing");
    assert!(is_refused(evaluate(&mut second, 6000)), "there is one room for all rules");
    drop((first, copy));
    assert_eq!(evaluate(&mut second, 6000), (Health::Ok, RESULTS), "what is gone is given back");
    let (mut third, one) = (group(0, 0), Many::of(1));
    let text = "{{ len (query \"m\") }}{{ printf \"%9999d\" 1 }}";
    third.rules[0].rule.annotations = (0..50).map(|n: u8| (n.to_string(), text.to_owned())).collect();
    third.evaluate(0, &setting, &one);
    assert!(matches!(&third.rules[0].health, Health::Err(told) if told.contains("too much memory")));
    assert!(one.passed.get() < 40, "those of a single result are held one by one, each asks for the time");
}

/// Labels that hold the value make other alerts with each evaluation. Those that have ended leave sooner where there is no
/// room, and where all are kept firing the rule fails.
#[test]
fn alerts_of_former_evaluations_have_an_end() {
    let run = |keep_minutes: i64, setting: &EvaluationSettings| {
        let mut group = group(0, keep_minutes);
        for k in 0..40 {
            let many = Many { first: k * 10, passes: false, ..Many::of(10) };
            group.evaluate(k as Millis * MINUTE, setting, &many);
        }
        (group.rules[0].health.clone(), group.rules[0].alerts().count())
    };
    let (free, narrow) = (
        EvaluationSettings::default(),
        EvaluationSettings { room: Room::new(40_000), ..EvaluationSettings::default() },
    );
    assert_eq!(run(0, &free), (Health::Ok, 170), "for a quarter of an hour");
    let (health, alerts) = run(0, &narrow);
    assert!(health == Health::Ok && (20..80).contains(&alerts), "{health:?} {alerts}");
    assert_eq!(run(1_000_000, &free), (Health::Ok, 400));
    let (health, alerts) = run(1_000_000, &narrow);
    assert!(matches!(health, Health::Err(told) if told.contains("too much memory")) && alerts < 80, "{alerts}");
}

#[test]
fn templates_are_for_each_element() {
    let mut group = group(0, 0);
    let texts = [("bad", "{{ nope }}"), ("i", "{{ $labels.i }}={{ $value }}")];
    group.rules[0].rule.annotations = texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let script = Script { hits: [(0, vec![("1", 2.0), ("2", 3.0)])].into(), ..Script::default() };
    group.evaluate(0, &EvaluationSettings::default(), &script);
    let shown: Vec<&str> = group.rules[0].alerts().map(|a| a.annotations["i"].as_str()).collect();
    assert_eq!(shown, ["1=2", "2=3"]);
    assert!(group.rules[0].alerts().all(|a| a.annotations["bad"].starts_with(ERROR_TEMPLATE)));
    assert_eq!(group.rules[0].warnings.len(), 2);
    group.evaluate(MINUTE, &EvaluationSettings::default(), &Many { passes: false, ..Many::of(1000) });
    assert_eq!((group.rules[0].alerts().count(), group.rules[0].warnings.len()), (1000, 100), "of many some are kept");
}

/// What vmalert has beside the variables of Prometheus, in rule files that come from it.
#[test]
fn variables_of_vmalert() {
    let mut group = group(2, 0);
    let texts = [
        ("all", "{{ $expr }} {{ $type }} {{ $for }} {{ $interval }} {{ $isPartial }} {{ .Expr }}"),
        ("ids", "{{ if and $alertID $groupID }}both{{ end }}"),
        ("since", "{{ $activeAt.Unix }} {{ ($activeAt.Add (parseDurationTime \"1h\")).Format \"15:04\" }}"),
    ];
    group.rules[0].rule.annotations = texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    // Labels are made before there is an alert.
    group.rules[0].rule.labels = [("sev".to_owned(), "{{ $alertID }} {{ $activeAt.IsZero }}".to_owned())].into();
    let hits = [MINUTE, 2 * MINUTE].map(|at| (at, vec![("1", 2.0)]));
    let script = Script { hits: hits.into(), ..Script::default() };
    for at in [MINUTE, 2 * MINUTE] {
        group.evaluate(at, &EvaluationSettings::default(), &script);
        assert!(group.rules[0].warnings.is_empty(), "{:?}", group.rules[0].warnings);
        let alert = group.rules[0].alerts().next().unwrap();
        assert_eq!(alert.labels.get("sev"), "0 true");
        assert_eq!(alert.annotations["all"], "m > 1 prometheus 2m0s 1m0s false m > 1");
        assert_eq!(alert.annotations["ids"], "both");
        // It stays the time since which it is active.
        assert_eq!(alert.annotations["since"], "60 01:01");
    }
    // Templates that name none of them run over the fields of Prometheus.
    group.rules[0].rule.labels.clear();
    group.rules[0].rule.annotations = [("all".to_owned(), "{{ . }}".to_owned())].into();
    group.evaluate(2 * MINUTE, &EvaluationSettings::default(), &script);
    let shown: Vec<&str> = group.rules[0].alerts().filter_map(|a| Some(a.annotations.get("all")?.as_str())).collect();
    assert!(shown.contains(&"{map[__name__:m i:1] map[]  2}"), "{shown:?}");
}
