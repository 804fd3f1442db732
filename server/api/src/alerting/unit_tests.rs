//! `POST /rulesapi/rules/unit-test`: promtool's unit tests of rules that are sent along (`config-api` 2.1). They run on stores
//! of their own; nothing that is stored is read.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use quiver_alerting::rules::{RuleGroup, read};
use quiver_alerting::unit_tests::{self, Outcome, TestFile};
use quiver_config::Problem;
use quiver_yaml as yaml;
use quiver_yaml::problem::Problems;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::alerting::policy::object_of;
use crate::config_api::deploy::refused;
use crate::config_api::request::of_body;
use crate::config_api::response::Answer;
use crate::expression_checks::Languages;
use crate::parsed_bodies;
use crate::state::AppState;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/rulesapi/rules/unit-test", post(test))
}

/// Most evaluations of one test.
const STEPS_MAX: i64 = 20_000;
/// Most tests of a request.
const TESTS_MAX: usize = 100;
/// Most evaluations of rules in all its tests: some minutes.
const EVALUATIONS_MAX: usize = 200_000;

fn text<'b>(body: &'b Map<String, Value>, field: &str) -> Result<&'b str, Problem> {
    let text = body.get(field).and_then(Value::as_str);
    text.ok_or_else(|| Problem::field(format!("/{field}"), "REQUIRED", "must be a text: YAML"))
}

fn unreadable(content: &str) -> impl Fn(Problems) -> Problem + '_ {
    |problems| refused(&problems, &yaml::read(content).unwrap_or_default())
}

/// Gives the texts of all rules that were sent.
fn texts_of<'r>(rules: Option<&'r Value>) -> Result<Vec<&'r str>, Problem> {
    match rules {
        Some(Value::String(text)) => Ok(vec![text.as_str()]),
        Some(Value::Object(map)) => {
            let files = map.get("files").and_then(Value::as_array);
            let files = files.ok_or_else(|| Problem::field("/rules/files", "REQUIRED", "must be a list of files"))?;
            let content = |(n, file): (usize, &'r Value)| {
                let text = file.get("content").and_then(Value::as_str);
                let at = format!("/rules/files/{n}/content");
                text.ok_or_else(|| Problem::field(at, "REQUIRED", "must be a text: rules as YAML"))
            };
            files.iter().enumerate().map(content).collect()
        }
        _ => Err(Problem::field("/rules", "REQUIRED", "rules are wanted: YAML, or files")),
    }
}

/// Gives the groups of these texts.
fn groups_of(texts: &[&str]) -> Result<Vec<RuleGroup>, Problem> {
    let mut all = Vec::new();
    for text in texts {
        all.extend(read(text, &Languages).map_err(unreadable(text))?.groups);
    }
    Ok(all)
}

fn tests_of(text: &str, rules: usize) -> Result<TestFile, Problem> {
    let file = unit_tests::read(text).map_err(unreadable(text))?;
    let limit = |why: String| Problem::field("/tests", "LIMIT_EXCEEDED", why);
    if file.tests.len() > TESTS_MAX {
        return Err(limit(format!("at most {TESTS_MAX} tests")));
    }
    let step = file.evaluation_interval_ms.max(1);
    let mut evaluations = 0_usize;
    for test in &file.tests {
        let times = test.alerts.iter().map(|a| a.eval_time_ms).chain(test.exprs.iter().map(|e| e.eval_time_ms));
        let steps = times.max().unwrap_or(0) / step;
        if steps > STEPS_MAX {
            return Err(limit(format!("test `{}` needs more than {STEPS_MAX} evaluations", test.name)));
        }
        let steps = usize::try_from(steps).unwrap_or(0) + 1;
        evaluations = evaluations.saturating_add(steps.saturating_mul(rules)).saturating_add(test.exprs.len());
    }
    if evaluations > EVALUATIONS_MAX {
        let why =
            format!("{rules} rules in all steps of all tests are {evaluations} evaluations, at most {EVALUATIONS_MAX}");
        return Err(limit(why));
    }
    Ok(file)
}

/// Writes what came of tests; what failed before any expectation was looked at is a case, too.
fn shown(file: &TestFile, outcomes: Vec<Outcome>) -> Value {
    let mut cases = Vec::new();
    for ((n, test), outcome) in file.tests.iter().enumerate().zip(outcomes) {
        let group = if test.is_named { test.name.clone() } else { n.to_string() };
        let is_told = outcome.cases.iter().any(|case| !case.is_ok);
        for case in outcome.cases {
            cases.push(json!({
                "name": case.name, "group": group, "ok": case.is_ok, "expected": case.expected, "got": case.got,
            }));
        }
        if !is_told {
            cases.extend(outcome.errors.into_iter().map(
                |error| json!({"name": "evaluation", "group": group, "ok": false, "expected": "", "got": error.to_string().trim()}),
            ));
        }
    }
    let passed = cases.iter().filter(|case| case["ok"] == true).count();
    json!({"passed": passed, "failed": cases.len() - passed, "cases": cases})
}

async fn run(state: &Arc<AppState>, request: Request) -> Result<Value, Problem> {
    let body = object_of(state, request, &["rules", "tests"]).await?;
    let (rules, tests) = (texts_of(body.get("rules"))?, text(&body, "tests"));
    let texts = rules.iter().copied().chain(tests.as_ref().ok().copied());
    let _room = parsed_bodies::hold_yaml_texts(&state.capacity.bodies, texts).map_err(of_body)?;
    let groups = groups_of(&rules)?;
    let file = tests_of(tests?, groups.iter().map(|group| group.rules.len()).sum())?;
    // Each test has a store: one request at a time.
    let place = Arc::clone(&state.capacity.places.tests).acquire_owned().await.map_err(Problem::internal)?;
    let bench = Arc::clone(&state.rule_bench);
    // A client that leaves takes its tests along: they may be as many as take hours.
    let stop = CancellationToken::new();
    let _stop_on_drop = stop.clone().drop_guard();
    let work = tokio::task::spawn_blocking(move || {
        let _place = place;
        shown(&file, bench.run(&file, &groups, &stop))
    });
    work.await.map_err(Problem::internal)
}

async fn test(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = run(&state, request).await;
    let answer = outcome.map_or_else(|problem| Answer::of_problem(&problem), Answer::ok);
    answer.into_response(state.shown_revision())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_rules(rules: Option<&Value>) -> Result<Vec<RuleGroup>, Problem> {
        groups_of(&texts_of(rules)?)
    }

    #[test]
    fn texts() {
        let rules = json!({"files": [{"content": "groups: [{name: a}]"}, {"content": "groups: [{name: b}]\n"}]});
        assert_eq!(read_rules(Some(&rules)).map(|g| g.len()).ok(), Some(2));
        let two = json!("groups: [{name: a}]\n---\ngroups: [{name: b}]\n");
        assert_eq!(read_rules(Some(&two)).map(|g| g.len()).ok(), Some(2));
        let code = |rules: Value| read_rules(Some(&rules)).err().map(|p| p.code);
        assert_eq!(code(json!("groups: [")), Some("MALFORMED_YAML"));
        assert_eq!(code(json!("groups: [{name: a, rules: [{alert: A, expr: 'up =='}]}]")), Some("VALIDATION_FAILED"));
        let tests = |at: &str, many: usize| {
            format!("tests: [{}]", format!("{{promql_expr_test: [{{expr: up, eval_time: {at}}}]}},").repeat(many))
        };
        assert!(tests_of(&tests("999d", 1), 1).is_err());
        // A test of 100 minutes is 101 steps.
        assert!(tests_of(&tests("100m", 20), 98).is_ok());
        assert!(tests_of(&tests("100m", 20), 100).is_err() && tests_of(&tests("100m", 19), 100).is_ok());
    }

    #[test]
    fn what_is_lacking_is_named() {
        let told = |body: Value| {
            let problem = read_rules(body.get("rules")).unwrap_err();
            (problem.errors[0].field.clone(), problem.errors[0].code)
        };
        let lacking = |field: &str| (field.to_owned(), "REQUIRED");
        for body in [json!({}), json!({"rules": null}), json!({"rules": 5}), json!({"rules": []})] {
            assert_eq!(told(body), lacking("/rules"));
        }
        for rules in [json!({}), json!({"files": "a"}), json!({"content": "groups: []"})] {
            assert_eq!(told(json!({"rules": rules})), lacking("/rules/files"));
        }
        let second = json!({"rules": {"files": [{"content": "groups: []"}, {"content": 5}]}});
        assert_eq!(told(second), lacking("/rules/files/1/content"));
        assert_eq!(read_rules(Some(&json!({"files": []}))).map(|groups| groups.len()).ok(), Some(0));
        let body = json!({"tests": "x", "other": 5});
        let body = body.as_object().expect("an object");
        assert_eq!(text(body, "tests").ok(), Some("x"));
        for field in ["other", "none"] {
            assert_eq!(text(body, field).unwrap_err().errors[0].field, format!("/{field}"));
        }
    }

    #[test]
    fn tests_are_bounded() {
        let tests =
            |count: usize| format!("tests: [{}]", "{promql_expr_test: [{expr: up, eval_time: 1m}]},".repeat(count));
        assert_eq!(tests_of(&tests(TESTS_MAX), 1).map(|file| file.tests.len()).ok(), Some(TESTS_MAX));
        let told = tests_of(&tests(TESTS_MAX + 1), 1).unwrap_err().errors.remove(0);
        assert_eq!(
            (told.field.as_str(), told.code, told.message.as_str()),
            ("/tests", "LIMIT_EXCEEDED", "at most 100 tests")
        );
        // Without rules only what is asked by itself is evaluated.
        assert!(tests_of(&tests(1), 0).is_ok());
        assert!(tests_of("tests: [", 1).is_err());
    }

    #[test]
    fn what_came_of_tests() {
        let named = "{name: first, promql_expr_test: [{expr: up, eval_time: 1m}]}";
        let file = tests_of(&format!("tests: [{named}, {{promql_expr_test: [{{expr: up, eval_time: 1m}}]}}]"), 0)
            .expect("tests");
        let case = |name: &str, is_ok: bool| unit_tests::Case {
            name: name.to_owned(),
            group: String::new(),
            is_ok,
            expected: "1".to_owned(),
            got: "2".to_owned(),
        };
        let shown_case = |name: &str, group: &str, ok: bool| json!({"name": name, "group": group, "ok": ok, "expected": "1", "got": "2"});
        let fault = |text: &str| unit_tests::Fault::from(text.to_owned());
        // A fault that a case tells is not told twice.
        let told = Outcome { errors: vec![fault("x")], cases: vec![case("a", true), case("b", false)] };
        let good = Outcome { errors: Vec::new(), cases: vec![case("c", true)] };
        let cases = [shown_case("a", "first", true), shown_case("b", "first", false), shown_case("c", "1", true)];
        assert_eq!(shown(&file, vec![told, good.clone()]), json!({"passed": 2, "failed": 1, "cases": cases}));
        // One that nothing else tells is a case.
        let broken = Outcome { errors: vec![fault("cannot be run\n")], cases: vec![case("a", true)] };
        let answer = shown(&file, vec![good, broken]);
        let last = json!({"name": "evaluation", "group": "1", "ok": false, "expected": "", "got": "cannot be run"});
        assert_eq!((&answer["passed"], &answer["failed"], &answer["cases"][2]), (&json!(2), &json!(1), &last));
        // A test that was not run has no cases.
        assert_eq!(shown(&file, Vec::new()), json!({"passed": 0, "failed": 0, "cases": []}));
    }
}
