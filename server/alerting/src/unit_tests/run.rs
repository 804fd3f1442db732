//! Runs a unit test: evaluates its groups step by step, adding input samples as simulated time passes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use quiver_types::time::duration;
use quiver_types::{LabelSet, Millis};

use super::compare::{self, Sample};
use super::series::{self, Value};
use super::test_engine::Bench;
use super::write_order::OrderedBench;
use super::{AlertTest, TestGroup, refused_samples};
use crate::rules::{
    ActiveAlert, AlertState, ElementValue, EvaluationSettings, Group, Health, Language, RuleGroup, RuleKind,
    RuleSample, RuleStatus, show_pairs,
};

/// An expectation and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What is expected: an alert or an expression, and when.
    pub name: String,
    /// The test that it belongs to.
    pub group: String,
    /// Whether the expectation is met.
    pub is_ok: bool,
    /// What was expected.
    pub expected: String,
    /// What came instead, or the same.
    pub got: String,
}

/// Something that failed; its text is promtool's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    text: String,
    /// What was compared, what was expected, what came; none where nothing came.
    compared: Option<[String; 3]>,
}

impl Fault {
    /// Gives what was compared, then what was expected and what came; none of what could not be compared.
    pub fn compared(&self) -> Option<&[String; 3]> {
        self.compared.as_ref()
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { text, compared: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What came of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What failed, in the order of promtool's report; empty: the test passed.
    pub errors: Vec<Fault>,
    /// The expectations that were looked at.
    pub cases: Vec<Case>,
}

/// Bytes that an expectation or a fault takes besides its texts.
const OWN_BYTES: usize = 200;

impl Outcome {
    /// The approximate memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes_since(0, 0)
    }

    /// The bytes of all cases and errors from these positions on.
    fn bytes_since(&self, case: usize, error: usize) -> usize {
        let cases = self.cases[case..].iter().flat_map(|c| [&c.name, &c.group, &c.expected, &c.got]);
        let errors = self.errors[error..].iter().flat_map(|e| e.compared.iter().flatten().chain([&e.text]));
        let own = (self.cases.len() - case + self.errors.len() - error) * OWN_BYTES;
        own + cases.chain(errors).map(String::len).sum::<usize>()
    }
}

/// The outcome of a test, limited in size.
struct Report<'a> {
    /// Name of the test.
    test: &'a str,
    outcome: Outcome,
    bytes_left: usize,
}

impl Report<'_> {
    /// Checks an expectation. Returns whether the report has room for another one; if not, the report ends by saying so.
    fn look(&mut self, check: impl FnOnce(&mut Outcome)) -> bool {
        let (cases, errors) = (self.outcome.cases.len(), self.outcome.errors.len());
        check(&mut self.outcome);
        let bytes = self.outcome.bytes_since(cases, errors);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.has_room()
    }

    fn has_room(&mut self) -> bool {
        if self.bytes_left == 0 {
            let why = "what came takes too much memory to be told: expect fewer alerts or samples, or fewer times";
            self.outcome.errors.push(why.to_owned().into());
            self.outcome.cases.push(Case {
                name: "evaluation".to_owned(),
                group: self.test.to_owned(),
                is_ok: false,
                expected: String::new(),
                got: why.to_owned(),
            });
        }
        self.bytes_left > 0
    }
}

/// Numbers in the samples of one test: some hundred megabytes.
const NUMBERS_MAX: usize = 4_000_000;

/// Input samples that were not added yet, by time: the time, the index of the series, the value.
type PendingSamples = std::iter::Peekable<std::vec::IntoIter<(Millis, usize, Value)>>;

/// The input series of a test, which are added step by step.
struct SeriesFeed {
    labels: Vec<LabelSet>,
    samples: PendingSamples,
}

impl SeriesFeed {
    /// Reads the samples up to a time since the start.
    fn new(group: &TestGroup, end_ms: Millis) -> Result<Self, String> {
        let (mut all, mut pending) = (Vec::new(), Vec::new());
        let slots = usize::try_from(end_ms / group.interval_ms.max(1)).unwrap_or(usize::MAX).saturating_add(1);
        let mut room = series::Room { slots, numbers: NUMBERS_MAX };
        for (labels, values) in &group.input_series {
            let (set, starts, rest) = series::labels(labels.trim())?;
            // Both are one line: values may begin behind the labels and a blank, as in promtool.
            let before = labels.trim().strip_suffix(rest).unwrap_or_default();
            let begins = !rest.is_empty() && before.ends_with([' ', '\t']);
            if starts || !(rest.is_empty() || begins) || rest.contains('\n') || values.trim().contains('\n') {
                return Err(format!("bad series: {labels} {}", values.trim()));
            }
            let items = if begins { Cow::Owned(format!("{rest} {values}")) } else { Cow::Borrowed(values.as_str()) };
            let slots = series::items_within(&items, &mut room)?;
            refused_samples::samples(&set, &slots)?;
            let at = |i: usize| group.start_ms.saturating_add(group.interval_ms.saturating_mul(i as i64));
            let series = all.len();
            pending.extend(slots.into_iter().enumerate().filter_map(|(i, s)| Some((at(i), series, s.value?))));
            all.push(set);
        }
        pending.sort_unstable_by_key(|(at, series, _)| (*at, *series));
        Ok(Self { labels: all, samples: pending.into_iter().peekable() })
    }

    /// Returns the next samples up to a time, series by series. Does not loop over series, because there may be many steps
    /// without samples.
    fn until(&mut self, until: Millis) -> Vec<RuleSample> {
        let mut due: Vec<_> = std::iter::from_fn(|| self.samples.next_if(|(ts, ..)| *ts <= until)).collect();
        due.sort_by_key(|(_, series, _)| *series);
        let sample = |(ts, series, value): (Millis, usize, Value)| {
            let value = match value {
                Value::Float(value) => ElementValue::Float(value),
                Value::Histogram(h) => {
                    let text = compare::histogram_text(&h);
                    ElementValue::Histogram(h, text)
                }
            };
            RuleSample { labels: self.labels[series].clone(), ts, value }
        };
        due.into_iter().map(sample).collect()
    }
}

/// Runs a test over groups of rules, in order.
pub fn run(
    test: &TestGroup,
    rules: &[RuleGroup],
    order: &[String],
    evaluation_interval_ms: Millis,
    fuzzy: bool,
    bench: &dyn Bench,
) -> Outcome {
    let mut report = Report { test: &test.name, outcome: Outcome::default(), bytes_left: bench.told_bytes_max() };
    if report.has_room()
        && let Err(faults) = run_into(&mut report, test, rules, (order, evaluation_interval_ms, fuzzy), bench)
    {
        report.outcome.errors.extend(faults.into_iter().map(Fault::from));
    }
    report.outcome
}

/// Runs a test until its report is full.
///
/// # Errors
/// The reasons why the test cannot go on.
fn run_into(
    report: &mut Report<'_>,
    test: &TestGroup,
    rules: &[RuleGroup],
    (order, evaluation_interval_ms, fuzzy): (&[String], Millis, bool),
    bench: &dyn Bench,
) -> Result<(), Vec<String>> {
    let one = |fault: String| vec![fault];
    let end = test.end_ms();
    let mut feed = bench.ready().and_then(|()| SeriesFeed::new(test, end)).map_err(one)?;
    // Groups without rules have nothing to evaluate, so their steps are skipped.
    let groups = rules.iter().filter(|g| !g.rules.is_empty());
    let mut groups: Vec<Group> = groups.map(|g| Group::new(g.clone(), test.interval_ms)).collect();
    let places: HashMap<&str, usize> = order.iter().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
    groups.sort_by_key(|g| places.get(g.model.name.as_str()).copied().unwrap_or(0));
    let setting = EvaluationSettings {
        external_labels: test.external_labels.clone(),
        external_url: test.external_url.clone(),
        room: bench.room(),
    };
    let engine = OrderedBench::new(bench);
    let mut alerts: Vec<&AlertTest> = test.alerts.iter().collect();
    alerts.sort_by_key(|alert| alert.eval_time_ms / evaluation_interval_ms.max(1));
    let mut alerts = alerts.into_iter().peekable();
    let mut elapsed = 0;
    while elapsed <= end {
        let at = test.start_ms + elapsed;
        let samples = feed.until(at);
        if !samples.is_empty() {
            engine.feed(&samples).map_err(one)?;
        }
        for group in &mut groups {
            group.evaluate(at, &setting, &engine);
        }
        let failed = failures(&groups, at);
        if !failed.is_empty() {
            return Err(failed);
        }
        elapsed += evaluation_interval_ms;
        while let Some(alert) = alerts.next_if(|alert| alert.eval_time_ms < elapsed) {
            if !report.look(|outcome| check_alerts(test, alert, &groups, outcome)) {
                return Ok(());
            }
        }
    }
    for expr in &test.exprs {
        if !report.look(|outcome| check_expr(test, expr, fuzzy, bench, outcome)) {
            break;
        }
    }
    Ok(())
}

fn failures(groups: &[Group], at: Millis) -> Vec<String> {
    let rules = groups.iter().flat_map(|g| &g.rules);
    let failed = rules.filter_map(|r| match &r.health {
        Health::Err(e) => Some((r, e)),
        _ => None,
    });
    let time = duration::format_go(at.saturating_mul(1_000_000));
    failed.map(|(rule, e)| format!("    rule: {}, time: {time}, err: {e}", rule.rule.name)).collect()
}

/// Labels and annotations of an alert.
type LabelsAndAnnotations = (BTreeMap<String, String>, BTreeMap<String, String>);

fn sorted(mut alerts: Vec<LabelsAndAnnotations>) -> Vec<LabelsAndAnnotations> {
    alerts.sort();
    alerts
}

fn labels_of(alert: &ActiveAlert) -> BTreeMap<String, String> {
    alert.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn check_alerts(test: &TestGroup, wanted: &AlertTest, groups: &[Group], outcome: &mut Outcome) {
    let rules = groups.iter().flat_map(|g| &g.rules);
    let named = rules.filter(|r| r.rule.kind == RuleKind::Alert && r.rule.name == wanted.alertname);
    let firing = named.flat_map(RuleStatus::alerts).filter(|a| a.state == AlertState::Firing);
    let got = sorted(firing.map(|a| (labels_of(a), BTreeMap::clone(&a.annotations))).collect());
    let expected = sorted(wanted.expected.clone());
    let time = duration::format(wanted.eval_time_ms);
    let is_ok = got == expected;
    let (expected, got) = (show_alerts(&expected), show_alerts(&got));
    if !is_ok {
        let name = if test.is_named { format!("    name: {},\n", test.name) } else { String::new() };
        let head = format!("{name}    alertname: {}, time: {time}, ", wanted.alertname);
        let [exp, got_text] = [&expected, &got].map(|text| indent(text, "            "));
        let text = format!("{head}\n        exp:{exp}, \n        got:{got_text}");
        outcome.errors.push(Fault { text, compared: Some([head, expected.clone(), got.clone()]) });
    }
    let name = format!("alert {} at {time}", wanted.alertname);
    outcome.cases.push(Case { name, group: test.name.clone(), is_ok, expected, got });
}

fn indent(text: &str, by: &str) -> String {
    text.replace('\n', &format!("\n{by}"))
}

fn show_alerts(alerts: &[LabelsAndAnnotations]) -> String {
    if alerts.is_empty() {
        return "[]".to_owned();
    }
    // An annotation without a text is there, too, and is compared.
    let braces = |pairs: &BTreeMap<String, String>| show_pairs(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    let one = |(i, (labels, annotations)): (usize, &LabelsAndAnnotations)| {
        format!("\n{i}:\n  Labels:{}\n  Annotations:{}", braces(labels), braces(annotations))
    };
    format!("[{}\n]", alerts.iter().enumerate().map(one).collect::<Vec<_>>().join(","))
}

fn check_expr(test: &TestGroup, wanted: &super::ExprTest, fuzzy: bool, bench: &dyn Bench, outcome: &mut Outcome) {
    let time = duration::format(wanted.eval_time_ms);
    let head = format!("    expr: {}, time: {time}", crate::text::quote(&wanted.expr));
    let mut case = Case {
        name: format!("expr {} at {time}", wanted.expr),
        group: test.name.clone(),
        is_ok: false,
        expected: String::new(),
        got: String::new(),
    };
    let got = bench.query(0, Language::Promql, &wanted.expr, test.start_ms + wanted.eval_time_ms);
    let expected: Result<Vec<Sample>, String> = wanted.samples.iter().map(Sample::expected).collect();
    let by_labels = |mut samples: Vec<Sample>| {
        samples.sort_by(|a, b| a.labels.iter().cmp(b.labels.iter()));
        samples
    };
    match (got, expected) {
        (Err(e), _) => {
            outcome.errors.push(format!("{head}, err: {e}").into());
            case.got = e;
        }
        (_, Err(e)) => {
            outcome.errors.push(format!("{head}, err: {e}").into());
            case.expected = e;
        }
        (Ok(got), Ok(expected)) => {
            let got = by_labels(got.into_iter().map(Sample::got).collect());
            let expected = by_labels(expected);
            case.is_ok = compare::equal(&expected, &got, fuzzy);
            (case.expected, case.got) = (compare::show(&expected), compare::show(&got));
            if !case.is_ok {
                let text = format!("{head},\n        exp: {}\n        got: {}", case.expected, case.got);
                // One sample a line, so that lines can be told apart.
                let [exp, came] = [&expected, &got].map(|samples| compare::lines(samples));
                outcome.errors.push(Fault { text, compared: Some([format!("{head},"), exp, came]) });
            }
        }
    }
    outcome.cases.push(case);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Element, Engine};

    /// An engine that answers every query with ten series, and the size limit for outcomes.
    struct Ten(usize);

    impl Engine for Ten {
        fn query(&self, _: usize, _: Language, _: &str, _: Millis) -> Result<Vec<Element>, String> {
            let labels = |i: usize| LabelSet::from_pairs([("i", i.to_string().as_str())]);
            Ok((0..10).map(|i| Element { labels: labels(i), value: ElementValue::Float(1.0) }).collect())
        }

        fn write(&self, _: &[RuleSample]) -> Result<(), String> {
            Ok(())
        }
    }

    impl Bench for Ten {
        fn told_bytes_max(&self) -> usize {
            self.0
        }
    }

    /// Breaks if short expectations produce an unlimited report: each is reported with all alerts or samples that came.
    #[test]
    fn what_is_told_is_bounded() {
        let exprs = "{expr: m, eval_time: 0},".repeat(100);
        let alerts = "{alertname: A, eval_time: 1m},".repeat(10);
        let text = format!("tests: [{{promql_expr_test: [{exprs}], alert_rule_test: [{alerts}]}}]");
        let file = super::super::read(&text).expect("valid");
        let outcome = |bytes: usize| run(&file.tests[0], &[], &[], 60_000, false, &Ten(bytes));
        let whole = outcome(usize::MAX);
        assert_eq!((whole.cases.len(), whole.errors.len()), (110, 100), "no alert is expected, and no sample");
        let cut = outcome(20_000);
        assert!((11..100).contains(&cut.cases.len()) && cut.bytes() < 30_000 && whole.bytes() > 60_000);
        let last = cut.cases.last().map(|case| (case.name.as_str(), case.is_ok));
        assert!(last == Some(("evaluation", false)) && cut.errors.last().is_some_and(|e| e.text.contains("memory")));
        let none = outcome(0);
        assert_eq!((none.cases.len(), none.errors.len()), (1, 1));
    }

    #[test]
    fn samples_come_in_time_and_series_by_series() {
        let text = "tests: [{input_series: [{series: b, values: '1 2'}, {series: a, values: '3 _ 4 5'}]}]";
        let file = super::super::read(text).expect("valid");
        let mut feed = SeriesFeed::new(&file.tests[0], 9 * 60_000).expect("two series");
        let mut until = |minutes: Millis| {
            let value = |sample: RuleSample| match sample.value {
                ElementValue::Float(value) => value,
                ElementValue::Histogram(..) => f64::NAN,
            };
            feed.until(minutes * 60_000).into_iter().map(value).collect::<Vec<_>>()
        };
        assert_eq!((until(0), until(2), until(2), until(9)), (vec![1.0, 3.0], vec![2.0, 4.0], vec![], vec![5.0]));
    }

    #[test]
    fn values_may_begin_behind_the_labels() {
        let feed = |series: &str, minutes: Millis| {
            let text = format!("tests: [{{input_series: [{{series: '{series}', values: '1 2x1'}}]}}]");
            let file = super::super::read(&text).expect("valid");
            let mut feed = SeriesFeed::new(&file.tests[0], minutes * 60_000)?;
            let value = |written: RuleSample| match written.value {
                ElementValue::Float(value) => (written.ts / 60_000, value),
                ElementValue::Histogram(..) => (written.ts / 60_000, f64::NAN),
            };
            Ok::<_, String>(feed.until(Millis::MAX).into_iter().map(value).collect::<Vec<_>>())
        };
        let all = vec![(0, 5.0), (1, 1.0), (2, 2.0), (3, 2.0)];
        assert_eq!(feed("x{a=\"b\"} 5", 9).as_ref(), Ok(&all));
        assert_eq!(feed("x 5", 1).as_deref(), Ok(&all[..2]));
        assert_eq!(feed("x 5", 0).as_deref(), Ok(&all[..1]));
        assert_eq!(feed("x", 9).map(|all| all.len()), Ok(3));
        assert!(feed("x{}{}", 9).is_err() && feed("x{},", 9).is_err());
    }

    #[test]
    fn annotations_without_a_text_are_shown() {
        let labels = [("alertname".to_owned(), "A".to_owned())].into();
        let annotations = [("a".to_owned(), String::new()), ("b".to_owned(), "x".to_owned())].into();
        let shown = show_alerts(&[(labels, annotations)]);
        assert_eq!(shown, "[\n0:\n  Labels:{alertname=\"A\"}\n  Annotations:{a=\"\", b=\"x\"}\n]");
    }
}
