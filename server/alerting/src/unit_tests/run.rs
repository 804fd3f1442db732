//! Runs a unit test: evaluates its groups step by step, adding input samples as simulated time passes.

use std::borrow::Cow;
use std::collections::BTreeMap;
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

/// Numbers in the samples of one test: some hundred megabytes.
const NUMBERS_MAX: usize = 4_000_000;

/// The samples of a series that are still to come.
type PendingSamples = std::iter::Peekable<std::vec::IntoIter<(Millis, Value)>>;

/// Series that are still to come.
struct SeriesFeed {
    series: Vec<(LabelSet, PendingSamples)>,
}

impl SeriesFeed {
    /// Reads the samples up to a time since the start.
    fn new(group: &TestGroup, end_ms: Millis) -> Result<Self, String> {
        let mut out = Vec::new();
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
            let samples: Vec<_> = slots.into_iter().enumerate().filter_map(|(i, s)| Some((at(i), s.value?))).collect();
            out.push((set, samples.into_iter().peekable()));
        }
        Ok(Self { series: out })
    }

    /// Gives the samples up to a time that were not given yet.
    fn until(&mut self, until: Millis) -> Vec<RuleSample> {
        let mut out = Vec::new();
        for (labels, samples) in &mut self.series {
            while let Some((ts, value)) = samples.next_if(|(ts, _)| *ts <= until) {
                let value = match value {
                    Value::Float(value) => ElementValue::Float(value),
                    Value::Histogram(h) => {
                        let text = compare::histogram_text(&h);
                        ElementValue::Histogram(h, text)
                    }
                };
                out.push(RuleSample { labels: labels.clone(), ts, value });
            }
        }
        out
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
    let mut outcome = Outcome::default();
    let end = test.end_ms();
    let feed = bench.ready().and_then(|()| SeriesFeed::new(test, end));
    let mut feed = match feed {
        Ok(feed) => feed,
        Err(e) => {
            outcome.errors.push(e.into());
            return outcome;
        }
    };
    let mut groups: Vec<Group> = rules.iter().map(|g| Group::new(g.clone(), test.interval_ms)).collect();
    groups.sort_by_key(|g| order.iter().position(|name| *name == g.model.name).unwrap_or(0));
    let setting = EvaluationSettings {
        external_labels: test.external_labels.clone(),
        external_url: test.external_url.clone(),
        ..EvaluationSettings::default()
    };
    let engine = OrderedBench::new(bench);
    let mut elapsed = 0;
    while elapsed <= end {
        let at = test.start_ms + elapsed;
        let samples = feed.until(at);
        if !samples.is_empty()
            && let Err(e) = engine.feed(&samples)
        {
            outcome.errors.push(e.into());
            return outcome;
        }
        for group in &mut groups {
            group.evaluate(at, &setting, &engine);
        }
        let failed = failures(&groups, at);
        if !failed.is_empty() {
            outcome.errors.extend(failed.into_iter().map(Fault::from));
            return outcome;
        }
        let next = elapsed + evaluation_interval_ms;
        for alert in test.alerts.iter().filter(|a| (elapsed..next).contains(&a.eval_time_ms)) {
            check_alerts(test, alert, &groups, &mut outcome);
        }
        elapsed = next;
    }
    for expr in &test.exprs {
        check_expr(test, expr, fuzzy, bench, &mut outcome);
    }
    outcome
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
