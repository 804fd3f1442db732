//! Parses unit test files.

use std::collections::HashSet;

use quiver_yaml::problem::{Code, Problems, UnknownFields};
use quiver_yaml::{self as yaml, Fields, Node, pointer};

use super::{AlertTest, ExpectedSample, ExprTest, TestFile, TestGroup};
use crate::template::parse_time;

const MINUTE_MS: i64 = 60_000;

/// Reads a file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn read(text: &str) -> Result<TestFile, Problems> {
    read_with(text, UnknownFields::Refused)
}

/// Reads a file, whose unknown fields may be nothing.
///
/// # Errors
/// As [`read`].
pub fn read_with(text: &str, unknown: UnknownFields) -> Result<TestFile, Problems> {
    let documents = yaml::read(text)?;
    let mut problems = Problems::with(unknown);
    let mut file = TestFile {
        rule_files: Vec::new(),
        evaluation_interval_ms: MINUTE_MS,
        group_eval_order: Vec::new(),
        fuzzy_compare: false,
        tests: Vec::new(),
    };
    let Some(document) = documents.first() else { return Ok(file) };
    let Some(mut fields) = Fields::new(document, "", &mut problems) else { return Err(problems) };
    file.rule_files = fields.texts("rule_files", &mut problems).unwrap_or_default();
    let interval = fields.duration_ms("evaluation_interval", &mut problems).filter(|ms| *ms > 0);
    file.evaluation_interval_ms = interval.unwrap_or(MINUTE_MS);
    file.group_eval_order = fields.texts("group_eval_order", &mut problems).unwrap_or_default();
    must_differ(&file.group_eval_order, &fields, &mut problems);
    file.fuzzy_compare = fields.truth("fuzzy_compare", &mut problems).unwrap_or(false);
    let tests = fields.list("tests", &mut problems).unwrap_or_default();
    fields.finish(&mut problems);
    for (i, node) in tests.iter().enumerate() {
        file.tests.extend(group(node, i, file.evaluation_interval_ms, &mut problems));
    }
    problems.or(file)
}

/// Tells names that come more than once in the order of evaluation.
fn must_differ(names: &[String], fields: &Fields<'_>, problems: &mut Problems) {
    let mut seen = HashSet::new();
    for name in names.iter().filter(|name| !seen.insert(name.as_str())) {
        let message = format!("group name repeated in evaluation order: {name}");
        fields.problem("group_eval_order", Code::Duplicate, message, problems);
    }
}

fn group(node: &Node, idx: usize, interval_ms: i64, problems: &mut Problems) -> Option<TestGroup> {
    let mut fields = Fields::new(node, pointer("/tests", idx), problems)?;
    let name = fields.text("name", problems).unwrap_or_default();
    let mut group = TestGroup {
        is_named: !name.is_empty(),
        name: if name.is_empty() { format!("unnamed#{idx}") } else { name },
        interval_ms: fields.duration_ms("interval", problems).filter(|ms| *ms > 0).unwrap_or(interval_ms),
        input_series: Vec::new(),
        alerts: Vec::new(),
        exprs: Vec::new(),
        external_labels: fields.text_map("external_labels", problems).unwrap_or_default(),
        external_url: fields.text("external_url", problems).unwrap_or_default(),
        start_ms: 0,
    };
    if let Some(text) = fields.text("start_timestamp", problems) {
        if let Some(ms) = start(&text) {
            group.start_ms = ms;
        } else {
            let message = format!("cannot parse {} to a valid timestamp", crate::text::quote(&text));
            fields.problem("start_timestamp", Code::InvalidValue, message, problems);
        }
    }
    for (i, item) in fields.list("input_series", problems).unwrap_or_default().iter().enumerate() {
        let path = pointer(&fields.path_of("input_series"), i);
        let Some(mut series) = Fields::new(item, path, problems) else { continue };
        let labels = series.text("series", problems).unwrap_or_default();
        let values = series.text("values", problems).unwrap_or_default();
        series.finish(problems);
        group.input_series.push((labels, values));
    }
    let whose = if group.is_named { format!(" (in TestGroup {})", group.name) } else { String::new() };
    for (i, item) in fields.list("alert_rule_test", problems).unwrap_or_default().iter().enumerate() {
        let path = pointer(&fields.path_of("alert_rule_test"), i);
        group.alerts.extend(alert(item, path, &whose, problems));
    }
    for (i, item) in fields.list("promql_expr_test", problems).unwrap_or_default().iter().enumerate() {
        let path = pointer(&fields.path_of("promql_expr_test"), i);
        group.exprs.extend(expr(item, path, problems));
    }
    fields.finish(problems);
    Some(group)
}

/// Reads RFC 3339 or Unix seconds.
fn start(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some((seconds * 1000.0).round()).filter(|ms| ms.abs() < 9e15).map(|ms| ms as i64);
    }
    let time = parse_time("2006-01-02T15:04:05Z07:00", text).ok()?;
    i64::try_from(time.nanos().div_euclid(1_000_000)).ok()
}

fn alert(node: &Node, path: String, whose: &str, problems: &mut Problems) -> Option<AlertTest> {
    let mut fields = Fields::new(node, path, problems)?;
    let eval_time_ms = fields.duration_ms("eval_time", problems).unwrap_or(0);
    let alertname = fields.text("alertname", problems).unwrap_or_default();
    if alertname.is_empty() {
        let at = quiver_types::time::duration::format(eval_time_ms);
        let what = "an item under alert_rule_test misses required attribute alertname";
        let message = format!("{what} at eval_time {at}{whose}");
        fields.problem("alertname", Code::Required, message, problems);
    }
    let mut expected = Vec::new();
    for (i, item) in fields.list("exp_alerts", problems).unwrap_or_default().iter().enumerate() {
        let path = pointer(&fields.path_of("exp_alerts"), i);
        let Some(mut alert) = Fields::new(item, path, problems) else { continue };
        let mut labels = alert.text_map("exp_labels", problems).unwrap_or_default();
        let annotations = alert.text_map("exp_annotations", problems).unwrap_or_default();
        alert.finish(problems);
        labels.insert("alertname".to_owned(), alertname.clone());
        expected.push((labels, annotations));
    }
    fields.finish(problems);
    Some(AlertTest { eval_time_ms, alertname, expected })
}

fn expr(node: &Node, path: String, problems: &mut Problems) -> Option<ExprTest> {
    let mut fields = Fields::new(node, path, problems)?;
    let expr = fields.text("expr", problems).unwrap_or_default();
    let eval_time_ms = fields.duration_ms("eval_time", problems).unwrap_or(0);
    let mut samples = Vec::new();
    for (i, item) in fields.list("exp_samples", problems).unwrap_or_default().iter().enumerate() {
        let path = pointer(&fields.path_of("exp_samples"), i);
        let Some(mut sample) = Fields::new(item, path, problems) else { continue };
        samples.push(ExpectedSample {
            labels: sample.text("labels", problems).unwrap_or_default(),
            value: sample.number("value", problems).unwrap_or(0.0),
            histogram: sample.text("histogram", problems).unwrap_or_default(),
        });
        sample.finish(problems);
    }
    fields.finish(problems);
    Some(ExprTest { expr, eval_time_ms, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file() {
        let text = "rule_files: [a.yml]\ntests:\n- input_series: [{series: up, values: 1x3}]\n  start_timestamp: 2020-01-01T00:00:00Z\n  alert_rule_test: [{eval_time: 1m, alertname: A, exp_alerts: [{exp_labels: {i: 1}}]}]\n  promql_expr_test: [{expr: up, eval_time: 0, exp_samples: [{value: .inf}]}]\n";
        let file = read(text).expect("valid");
        let test = &file.tests[0];
        assert_eq!((test.name.as_str(), test.interval_ms, test.start_ms), ("unnamed#0", 60_000, 1_577_836_800_000));
        assert_eq!(test.alerts[0].expected[0].0["alertname"], "A");
        assert_eq!(test.exprs[0].samples[0].value, f64::INFINITY);
        let told = |text: &str| read(text).expect_err(text).to_string();
        assert!(
            told("tests: [{name: x, alert_rule_test: [{eval_time: 1m}]}]")
                .contains("misses required attribute alertname at eval_time 1m (in TestGroup x)")
        );
        assert!(told("tests: [{foo: 1}]").contains("unknown field"));
        assert!(told("group_eval_order: [a, a]").contains("repeated in evaluation order: a"));
        assert!(told("tests: [{start_timestamp: x}]").contains("valid timestamp"));
    }
}
