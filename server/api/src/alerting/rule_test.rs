//! `POST /rulesapi/rules/test`: evaluates a rule from an empty state, on the data that the caller may see. Nothing is
//! stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use parking_lot::Mutex;
use quiver_alertd::rules::GroupContext;
use quiver_alerting::rules::{
    AlertState, Element, ElementValue, Engine, EvaluationSettings, Group, Health, Language, RuleGroup, RuleKind,
    RuleSample,
};
use quiver_config::{Problem, ProblemKind};
use quiver_types::time::duration;
use quiver_types::{Domain, LabelSet, Millis, Right, is_stale};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::alerting::policy::{object_of, time_of};
use crate::alerting::stored_rules::group_of;
use crate::config_api::response::Answer;
use crate::handlers::boxed;
use crate::state::AppState;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/rulesapi/rules/test", post(boxed(test)))
}

/// Most evaluations of a test.
const STEPS_MAX: i64 = 1000;
/// Most points of all series in an answer.
const POINTS_MAX: usize = 200_000;
/// Most memory of the labels and annotations of all series in an answer, in bytes: each may have long texts.
const ROWS_BYTES_MAX: usize = if cfg!(test) { 4 << 20 } else { 128 << 20 };
/// Most warnings in an answer.
const WARNINGS_MAX: usize = 100;
/// Longest run of a test over all its steps.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Asks the engine, and keeps to itself what would be written.
struct Trial {
    engine: Arc<dyn Engine + Send + Sync>,
    written: Mutex<Vec<RuleSample>>,
    /// The client has gone.
    stop: CancellationToken,
}

impl Engine for Trial {
    fn query(&self, rule: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        self.engine.query(rule, language, expr, at)
    }

    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        *self.written.lock() = samples.to_vec();
        Ok(())
    }

    // Texts may take as long as they may when the rule runs.
    fn elapsed(&self) -> Duration {
        self.engine.elapsed()
    }
}

/// A number; a text where JSON has none.
fn number(value: &ElementValue) -> Value {
    match value {
        ElementValue::Float(v) if v.is_nan() => "NaN".into(),
        ElementValue::Float(v) if v.is_infinite() => if *v > 0.0 { "+Inf" } else { "-Inf" }.into(),
        ElementValue::Float(v) => json!(v),
        ElementValue::Histogram(_, text) => text.as_str().into(),
    }
}

/// A series of the answer: its last row, and its points over a range.
struct Row {
    labels: LabelSet,
    last: Value,
    points: Vec<Value>,
    /// Memory of its labels and of its last row.
    bytes: usize,
}

/// An alert or sample at one time.
struct RowAt {
    labels: LabelSet,
    row: Value,
    point: Value,
    /// Memory of labels and row.
    bytes: usize,
}

fn rows_at(group: &Group, trial: &Trial, at: Millis) -> Vec<RowAt> {
    let status = &group.rules[0];
    let seconds = json!(at as f64 / 1000.0);
    if status.rule.kind == RuleKind::Alert {
        let live = status.alerts().filter(|a| a.state != AlertState::Inactive);
        return live
            .map(|a| {
                let (value, state) = (number(&a.value), a.state.as_str());
                let row = json!({"value": value, "state": state, "annotations": *a.annotations});
                RowAt { labels: a.labels.clone(), row, point: json!([seconds, value, state]), bytes: a.bytes() }
            })
            .collect();
    }
    let ends = |w: &RuleSample| matches!(w.value, ElementValue::Float(v) if is_stale(v));
    let written = trial.written.lock();
    let row = |w: &RuleSample| {
        let value = number(&w.value);
        let (row, point) = (json!({"value": value, "state": Value::Null}), json!([seconds, value, Value::Null]));
        RowAt { labels: w.labels.clone(), row, point, bytes: w.labels.canonical().len() }
    };
    written.iter().filter(|w| !ends(w)).map(row).collect()
}

/// Evaluates at each time; blocks.
fn evaluate(
    model: RuleGroup,
    times: &[Millis],
    setting: &EvaluationSettings,
    trial: &Trial,
    ranged: bool,
) -> Result<Value, Problem> {
    let began = Instant::now();
    let mut group = Group::new(model, 60_000);
    let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    let (mut samples, mut points, mut bytes) = (0, 0, 0_usize);
    let mut warnings = BTreeSet::new();
    let limit = |text: String| Problem::new(ProblemKind::Invalid, "LIMIT_EXCEEDED", text);
    for at in times {
        if trial.stop.is_cancelled() {
            return Err(Problem::new(ProblemKind::Invalid, "CANCELLED", "the client has gone"));
        }
        if began.elapsed() > TEST_TIMEOUT {
            return Err(limit(format!("the test takes longer than {}s", TEST_TIMEOUT.as_secs())));
        }
        trial.written.lock().clear();
        group.evaluate(*at, setting, trial);
        let status = &group.rules[0];
        if let Health::Err(e) = &status.health {
            return Err(Problem::field("/rule/expr", "INVALID_EXPR", e.clone()));
        }
        samples += status.samples;
        warnings.extend(status.warnings.iter().take(WARNINGS_MAX.saturating_sub(warnings.len())).cloned());
        if !ranged {
            rows.clear();
            bytes = 0;
        }
        let found = rows_at(&group, trial, *at);
        points += found.len();
        if points > POINTS_MAX {
            let what = "points: test fewer series, or at fewer times";
            return Err(limit(format!("the test gives more than {POINTS_MAX} {what}")));
        }
        for found in found {
            let key = found.labels.canonical().to_vec();
            let empty = || Row { labels: found.labels, last: Value::Null, points: Vec::new(), bytes: 0 };
            let row = rows.entry(key).or_insert_with(empty);
            bytes = bytes + found.bytes - row.bytes;
            (row.last, row.bytes) = (found.row, found.bytes);
            row.points.push(found.point);
        }
        if bytes > ROWS_BYTES_MAX {
            let what = "bytes of labels and annotations: test fewer series, or at fewer times";
            return Err(limit(format!("the test gives more than {ROWS_BYTES_MAX} {what}")));
        }
    }
    let shown = rows.into_values().map(|row| {
        let mut out = row.last;
        let labels: Map<String, Value> = row.labels.iter().map(|(n, v)| (n.to_owned(), v.into())).collect();
        out["labels"] = labels.into();
        if ranged {
            out["points"] = row.points.into();
        }
        out
    });
    let series: Vec<Value> = shown.collect();
    let stats =
        json!({"evaluations": times.len(), "samples": samples, "evaluationTime": began.elapsed().as_secs_f64()});
    Ok(json!({"series": series, "stats": stats, "warnings": warnings}))
}

/// Reads the times of a test: one, or those of a range.
fn times_of(body: &Map<String, Value>, now: Millis) -> Result<(Vec<Millis>, bool), Problem> {
    const MS: i64 = 1_000_000;
    let time = |name: &str| time_of(body.get(name), &format!("/{name}"), now.saturating_mul(MS)).map(|ns| ns / MS);
    if !body.contains_key("start") && !body.contains_key("end") {
        return Ok((vec![time("time")?], false));
    }
    if !body.contains_key("start") {
        return Err(Problem::field("/start", "REQUIRED", "a range has a start"));
    }
    let (start, end) = (time("start")?, time("end")?);
    let step = match body.get("step") {
        None | Some(Value::Null) => 60_000,
        Some(Value::String(text)) => {
            duration::parse(text).map_err(|e| Problem::field("/step", "INVALID_DURATION", e))?
        }
        Some(value) => value.as_f64().map_or(0, |seconds| (seconds * 1000.0) as Millis),
    };
    if step <= 0 {
        return Err(Problem::field("/step", "OUT_OF_RANGE", "the step is above zero"));
    }
    if end < start {
        return Err(Problem::field("/end", "OUT_OF_RANGE", "the end is not before the start"));
    }
    if (end - start) / step >= STEPS_MAX {
        return Err(Problem::field("/step", "LIMIT_EXCEEDED", format!("at most {STEPS_MAX} evaluations")));
    }
    Ok(((0..=(end - start) / step).map(|i| start + i * step).collect(), true))
}

async fn run(state: &Arc<AppState>, request: Request) -> Result<Value, Problem> {
    let body = object_of(state, request, &["rule", "time", "start", "end", "step"]).await?;
    let rule = body.get("rule").and_then(Value::as_object);
    let rule = rule.ok_or_else(|| Problem::field("/rule", "REQUIRED", "a rule is wanted: an object"))?;
    let (model, mut warnings) = group_of(rule)?;
    let (times, ranged) = times_of(&body, state.clock.now_ms())?;
    let domain = match model.rules[0].language {
        Language::Promql => Some(Domain::Metrics),
        Language::Logsql => Some(Domain::Logs),
        // Each model has a domain of its own, and its rows are judged by it.
        Language::Olap => None,
    };
    if let Some(domain) = domain.filter(|domain| !state.identity().rights.has_any(Right::View, *domain)) {
        return Err(Problem::forbidden(&format!("{{view, {}, *}}", domain.name())));
    }
    let asker = GroupContext {
        file: String::new(),
        group: model.name.clone(),
        interval: Duration::from_millis(model.interval_ms.unwrap_or(60_000).max(0).unsigned_abs()),
        timeout: state.limits().timeout.min(TEST_TIMEOUT),
        rights: vec![(*state.identity().rights).clone()],
        editors: Vec::new(),
        extra_labels: model.extra_labels(),
    };
    let rules = &state.alertd.rules;
    let stop = CancellationToken::new();
    let _stop_on_drop = stop.clone().drop_guard();
    let trial = Trial { engine: rules.engine(&asker), written: Mutex::default(), stop };
    let setting = rules.setting().clone();
    let work = tokio::task::spawn_blocking(move || evaluate(model, &times, &setting, &trial, ranged));
    let mut answer = work.await.map_err(Problem::internal)??;
    if let Some(list) = answer["warnings"].as_array_mut() {
        list.extend(warnings.drain(..).map(Value::from));
    }
    Ok(answer)
}

async fn test(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = run(&state, request).await;
    let answer = outcome.map_or_else(|problem| Answer::of_problem(&problem), Answer::ok);
    answer.into_response(state.shown_revision())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn rules_of_the_configuration() {
        let rule = json!({
            "alert": "A", "expr": "up == 0", "for": "5m", "severity": "page", "service": "cart",
            "runbook_url": "http://r", "labels": {"service": "own"},
        });
        let (group, _) = group_of(&object(rule)).expect("valid");
        let rule = &group.rules[0];
        assert_eq!((rule.labels["severity"].as_str(), rule.labels["service"].as_str()), ("page", "own"));
        assert_eq!((rule.annotations["runbook_url"].as_str(), rule.for_ms), ("http://r", 300_000));
        let refused = |rule: Value| {
            let errors = group_of(&object(rule)).expect_err("not valid").errors;
            (errors[0].field.clone(), errors[0].code)
        };
        assert_eq!(refused(json!({"alert": "A", "expr": "up =="})), ("/rule/expr".to_owned(), "INVALID_EXPR"));
        assert_eq!(refused(json!({"alert": "A", "expr": "1", "foo": 1})), ("/rule/foo".to_owned(), "UNKNOWN_FIELD"));
        assert_eq!(refused(json!({"expr": "1"})), ("/rule/alert".to_owned(), "REQUIRED"));
        let both = json!({"alert": "A", "expr": "1", "severity": "a", "labels": {"severity": "b"}});
        assert_eq!(refused(both), ("/rule/severity".to_owned(), "INVALID_VALUE"));
        assert_eq!(refused(json!({"alert": "A", "expr": "{}", "language": "olap"})).1, "INVALID_EXPR");
    }

    /// Gives as many series at each time.
    struct Many(usize);

    impl Engine for Many {
        fn query(&self, _: usize, _: Language, _: &str, _: Millis) -> Result<Vec<Element>, String> {
            let labels = |i: usize| LabelSet::from_pairs([("i", i.to_string().as_str())]);
            Ok((0..self.0).map(|i| Element { labels: labels(i), value: ElementValue::Float(1.0) }).collect())
        }

        fn write(&self, _: &[RuleSample]) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn points_are_bounded_and_a_client_that_left_ends_its_test() {
        let (group, _) = group_of(&object(json!({"record": "r:x", "expr": "m"}))).expect("valid");
        let stop = CancellationToken::new();
        let run = |series: usize, steps: i64| {
            let trial = Trial { engine: Arc::new(Many(series)), written: Mutex::default(), stop: stop.clone() };
            let times: Vec<Millis> = (1..=steps).map(|n| n * 60_000).collect();
            evaluate(group.clone(), &times, &EvaluationSettings::default(), &trial, true)
        };
        let answer = run(10, 3).expect("few points");
        assert_eq!((answer["series"].as_array().map(Vec::len), &answer["stats"]["evaluations"]), (Some(10), &json!(3)));
        let refused = run(POINTS_MAX / 10, 11).expect_err("too many points");
        assert_eq!(refused.code, "LIMIT_EXCEEDED");
        stop.cancel();
        assert_eq!(run(1, 1).expect_err("nobody waits").code, "CANCELLED");
    }

    #[test]
    fn times() {
        let read = |value: Value| times_of(&object(value), 5000).map_err(|p| p.errors[0].code);
        assert_eq!(read(json!({})), Ok((vec![5000], false)));
        assert_eq!(read(json!({"start": 0, "end": 120})), Ok((vec![0, 60_000, 120_000], true)));
        assert_eq!(read(json!({"start": 0, "end": 1, "step": "500ms"})).map(|t| t.0.len()), Ok(3));
        assert_eq!(read(json!({"start": 1, "end": 0})), Err("OUT_OF_RANGE"));
        assert_eq!(read(json!({"start": 0, "end": 100_000, "step": 1})), Err("LIMIT_EXCEEDED"));
    }

    #[test]
    fn times_that_are_none() {
        let read = |value: Value| {
            times_of(&object(value), 5000).map_err(|problem| (problem.errors[0].field.clone(), problem.errors[0].code))
        };
        let wrong = |field: &str, code: &'static str| Err((field.to_owned(), code));
        for (body, expected) in [
            (json!({"time": "1970-01-01T00:00:01.5Z"}), Ok((vec![1500], false))),
            (json!({"time": 2}), Ok((vec![2000], false))),
            (json!({"time": null}), Ok((vec![5000], false))),
            // Without an end a range ends now; a time beside it says nothing.
            (json!({"start": 4, "step": 1, "time": 9}), Ok((vec![4000, 5000], true))),
            (json!({"start": 4, "end": 4}), Ok((vec![4000], true))),
            (json!({"start": 0, "end": 5, "step": "2s"}), Ok((vec![0, 2000, 4000], true))),
            (json!({"start": 0, "end": 1, "step": null}), Ok((vec![0], true))),
            (json!({"end": 5}), wrong("/start", "REQUIRED")),
            (json!({"time": "soon"}), wrong("/time", "INVALID_VALUE")),
            (json!({"time": [1]}), wrong("/time", "INVALID_VALUE")),
            (json!({"start": 0, "end": "x"}), wrong("/end", "INVALID_VALUE")),
            (json!({"start": 0, "step": "fast"}), wrong("/step", "INVALID_DURATION")),
            (json!({"start": 1, "end": 0}), wrong("/end", "OUT_OF_RANGE")),
            (json!({"start": 0, "step": 0}), wrong("/step", "OUT_OF_RANGE")),
            (json!({"start": 0, "step": -1}), wrong("/step", "OUT_OF_RANGE")),
            (json!({"start": 0, "step": 0.0001}), wrong("/step", "OUT_OF_RANGE")),
            (json!({"start": 0, "step": {}}), wrong("/step", "OUT_OF_RANGE")),
        ] {
            assert_eq!(read(body.clone()), expected, "{body}");
        }
        // As many evaluations as there may be, and one more.
        let range = |steps: i64| json!({"start": 0, "end": steps, "step": 1});
        assert_eq!(read(range(STEPS_MAX - 1)).map(|(times, _)| times.len()), Ok(1000));
        assert_eq!(read(range(STEPS_MAX)).map(|(times, _)| times.len()), Err(("/step".to_owned(), "LIMIT_EXCEEDED")));
    }

    #[test]
    fn values_of_elements() {
        for (value, expected) in [
            (ElementValue::Float(1.5), json!(1.5)),
            (ElementValue::Float(f64::NAN), json!("NaN")),
            (ElementValue::Float(f64::INFINITY), json!("+Inf")),
            (ElementValue::Float(f64::NEG_INFINITY), json!("-Inf")),
            (ElementValue::Histogram(Box::default(), "{count:3}".to_owned()), json!("{count:3}")),
        ] {
            assert_eq!(number(&value), expected);
        }
    }

    /// Different alerts at each time, each with a long annotation: few exist at once, but all are reported.
    #[test]
    fn texts_of_all_times_are_bounded() {
        let long = "{{ range 6 }}{{ printf \"%9999d\" 1 }}{{ end }}";
        let rule = json!({"alert": "A", "expr": "m", "labels": {"at": "{{ now }}"}, "annotations": {"long": long}});
        let (group, _) = group_of(&object(rule)).expect("valid");
        let run = |steps: i64, ranged: bool| {
            let engine = Arc::new(Many(10));
            let trial = Trial { engine, written: Mutex::default(), stop: CancellationToken::new() };
            let times: Vec<Millis> = (1..=steps).map(|n| n * 60_000).collect();
            evaluate(group.clone(), &times, &EvaluationSettings::default(), &trial, ranged)
        };
        assert!(run(3, true).is_ok() && run(25, false).is_ok());
        assert_eq!(run(25, true).expect_err("too many texts").code, "LIMIT_EXCEEDED");
    }

    /// Gives one series at times before a bound, and fails from another one on.
    struct Until(Millis, Millis);

    impl Engine for Until {
        fn query(&self, _: usize, _: Language, _: &str, at: Millis) -> Result<Vec<Element>, String> {
            if at >= self.1 {
                return Err("it breaks".to_owned());
            }
            let element = Element { labels: LabelSet::from_pairs([("i", "1")]), value: ElementValue::Float(2.0) };
            Ok(if at < self.0 { vec![element] } else { Vec::new() })
        }

        fn write(&self, _: &[RuleSample]) -> Result<(), String> {
            Err("nothing is written".to_owned())
        }
    }

    fn tried(rule: Value, engine: Until, times: &[Millis], ranged: bool) -> Result<Value, Problem> {
        let (group, _) = group_of(&object(rule)).expect("valid");
        let trial = Trial { engine: Arc::new(engine), written: Mutex::default(), stop: CancellationToken::new() };
        evaluate(group, times, &EvaluationSettings::default(), &trial, ranged)
    }

    #[test]
    fn alerts_of_a_test_have_their_states() {
        let rule = json!({"alert": "A", "expr": "m", "for": "1m", "annotations": {"v": "{{ $value }}"}});
        let times = [0, 30_000, 60_000];
        let answer = tried(rule.clone(), Until(i64::MAX, i64::MAX), &times, true).expect("a test");
        let expected = json!([{
            "labels": {"alertname": "A", "i": "1"}, "value": 2.0, "state": "firing", "annotations": {"v": "2"},
            "points": [[0.0, 2.0, "pending"], [30.0, 2.0, "pending"], [60.0, 2.0, "firing"]],
        }]);
        assert_eq!(answer["series"], expected);
        assert_eq!((&answer["stats"]["evaluations"], &answer["warnings"]), (&json!(3), &json!([])));
        // At one time there is the last state, and no point.
        let once = tried(rule.clone(), Until(i64::MAX, i64::MAX), &times[..1], false).expect("a test");
        assert_eq!((&once["series"][0]["state"], once["series"][0].get("points")), (&json!("pending"), None));
        // What ended is not there any more; what was there before stays in a range.
        let gone =
            |ranged| tried(rule.clone(), Until(30_000, i64::MAX), &times, ranged).expect("a test")["series"].clone();
        assert_eq!(gone(false), json!([]));
        assert_eq!(gone(true)[0]["points"], json!([[0.0, 2.0, "pending"]]));
    }

    #[test]
    fn records_of_a_test_are_not_written() {
        let rule = json!({"record": "r:x", "expr": "m"});
        let answer = tried(rule.clone(), Until(30_000, i64::MAX), &[0, 30_000], true).expect("a test");
        let expected = json!([{
            "labels": {"__name__": "r:x", "i": "1"}, "value": 2.0, "state": null, "points": [[0.0, 2.0, null]],
        }]);
        // A staleness marker is not a point of the series.
        assert_eq!(answer["series"], expected);
        let broken = tried(rule, Until(i64::MAX, 30_000), &[0, 30_000], true).expect_err("it fails at the second time");
        let error = &broken.errors[0];
        assert_eq!(
            (error.field.as_str(), error.code, error.message.as_str()),
            ("/rule/expr", "INVALID_EXPR", "it breaks")
        );
    }
}
