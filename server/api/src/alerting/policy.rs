//! Dry runs of a policy: tests routes, templates and receivers (`config-api` 2.5 and 2.6). Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use chrono::DateTime;
use http::header;
use quiver_alertd::delivery::Message;
use quiver_alertd::policy::{Policy, undelivered};
use quiver_alerting::config::Config;
use quiver_alerting::dispatch::{Alert, MessageData};
use quiver_alerting::labels::fingerprint_text;
use quiver_alerting::template::{Budget, Options, RouteLabels, TemplateEnvironment};
use quiver_config::families::RECEIVERS;
use quiver_config::{ChangeMode, FieldError, Problem, ProblemKind};
use quiver_types::time::duration;
use quiver_types::{Domain, LabelSet, brief};
use quiver_yaml as yaml;
use serde_json::{Map, Value, json};

use crate::alerting::alerts::Sight;
use crate::alerting::kept_secrets;
use crate::body_memory::read_unpacked;
use crate::config_api::path_ids::{change_mode, no_parameters};
use crate::config_api::request::of_body;
use crate::config_api::response::{Answer, with_dry_run};
use crate::handlers::boxed;
use crate::parsed_bodies::{self, HeldObject};
use crate::prometheus_params::time_ms;
use crate::state::AppState;

type Outcome = Result<Value, Problem>;

/// Largest body, in bytes.
const BODY_MAX: usize = 4 << 20;
/// Most alerts per test.
const ALERTS_MAX: usize = 1000;
const MS: i64 = 1_000_000;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/rulesapi/rulepolicy/routes/test", post(boxed(routes_test)))
        .route("/rulesapi/rulepolicy/templates/test", post(boxed(templates_test)))
        .route("/rulesapi/rulepolicy/receivers/test", post(boxed(receivers_test)))
}

fn answer(state: &AppState, outcome: Outcome) -> Response {
    let answer = outcome.map_or_else(|problem| Answer::of_problem(&problem), Answer::ok);
    answer.into_response(state.shown_revision())
}

/// Reads a body that must be an object with only these fields, of a request without parameters.
pub(crate) async fn object_of(state: &AppState, request: Request, fields: &[&str]) -> Result<HeldObject, Problem> {
    let (head, body) = request.into_parts();
    no_parameters(head.uri.query())?;
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !["application/json", "application/merge-patch+json"].iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        let text = "`Content-Type: application/json` is needed";
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", text));
    }
    let body = read_unpacked(&state.capacity.bodies, &head.headers, body, BODY_MAX).await.map_err(of_body)?;
    let room = parsed_bodies::hold(&state.capacity.bodies, &body).map_err(of_body)?;
    let map = quiver_config::json::object(&body)?;
    let unknown = map.keys().filter(|key| !fields.contains(&key.as_str()));
    let errors: Vec<FieldError> =
        unknown.map(|key| FieldError::new(format!("/{key}"), "UNKNOWN_FIELD", "nobody knows this field")).collect();
    if errors.is_empty() { Ok(HeldObject::new(map, room)) } else { Err(Problem::invalid(errors)) }
}

fn texts(value: Option<&Value>, field: &str) -> Result<BTreeMap<String, String>, Problem> {
    let map = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(Problem::field(field, "INVALID_TYPE", "a mapping of texts is wanted")),
    };
    let pair = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((name.clone(), text.to_owned())),
        None => Err(Problem::field(format!("{field}/{name}"), "INVALID_TYPE", "a text is wanted")),
    };
    map.iter().map(pair).collect()
}

fn set(map: &BTreeMap<String, String>) -> LabelSet {
    LabelSet::from_pairs(map.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| (n.as_str(), v.as_str())))
}

/// Parses RFC 3339 or Unix seconds; returns nanoseconds.
pub(crate) fn time_of(value: Option<&Value>, field: &str, default: i64) -> Result<i64, Problem> {
    let bad = || Problem::field(field, "INVALID_VALUE", "a time is wanted: RFC 3339 or Unix seconds");
    let text = match value {
        None | Some(Value::Null) => return Ok(default),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(bad()),
    };
    if let Ok(time) = DateTime::parse_from_rfc3339(&text) {
        return time.timestamp_nanos_opt().ok_or_else(bad);
    }
    time_ms(&text).and_then(|ms| ms.checked_mul(MS)).ok_or_else(bad)
}

async fn routes_test(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = async {
        let body = object_of(&state, request, &["labels", "time"]).await?;
        if !body.contains_key("labels") {
            return Err(Problem::field("/labels", "REQUIRED", "labels are wanted"));
        }
        let labels = set(&texts(body.get("labels"), "/labels")?);
        let router = &state.alertd.router;
        let at = time_of(body.get("time"), "/time", router.now())?;
        // The right to see the policy does not include alerts and silences.
        let sight = Sight::new(&state, &state.access(Domain::Alerts));
        let matches: Vec<Value> = router
            .test_route(&labels, at)
            .into_iter()
            .map(|found| {
                let o = &found.options;
                let by: Vec<String> =
                    if o.group_by_all { vec!["...".to_owned()] } else { o.group_by.iter().cloned().collect() };
                let inhibited = found.inhibited_by.iter().filter(|id| sight.alert(**id));
                let inhibited: Vec<String> = inhibited.map(|id| fingerprint_text(*id)).collect();
                let silenced: Vec<&String> = found.silenced_by.iter().filter(|id| sight.silence(id)).collect();
                json!({
                    "routeId": found.path.last(), "path": found.path, "receiver": o.receiver,
                    "groupKey": found.group_key, "group_by": by, "group_wait": duration::format(o.group_wait_ms),
                    "group_interval": duration::format(o.group_interval_ms),
                    "repeat_interval": duration::format(o.repeat_interval_ms),
                    "muted": found.muted, "inhibitedBy": inhibited, "silencedBy": silenced,
                })
            })
            .collect();
        Ok(json!({"matches": matches}))
    };
    let outcome = outcome.await;
    answer(&state, outcome)
}

/// Reads the alerts of a test; those without a status are firing.
fn alerts_of(value: Option<&Value>, now: i64) -> Result<Vec<Alert>, Problem> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= ALERTS_MAX => items,
        Some(Value::Array(_)) => {
            return Err(Problem::field("/alerts", "LIMIT_EXCEEDED", format!("at most {ALERTS_MAX} alerts")));
        }
        Some(_) => return Err(Problem::field("/alerts", "INVALID_TYPE", "a list is wanted")),
    };
    let mut out = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let field = |name: &str| format!("/alerts/{i}/{name}");
        if !item.is_object() {
            return Err(Problem::field(format!("/alerts/{i}"), "INVALID_TYPE", "an alert is an object"));
        }
        let status = match item.get("status") {
            None | Some(Value::Null) => "firing",
            Some(status) => status.as_str().unwrap_or_default(),
        };
        let starts_at = time_of(item.get("startsAt"), &field("startsAt"), now)?;
        let ends_at = match status {
            "firing" => i64::MAX,
            "resolved" => time_of(item.get("endsAt"), &field("endsAt"), now)?.min(now),
            _ => return Err(Problem::field(field("status"), "INVALID_VALUE", "`firing` or `resolved` is wanted")),
        };
        out.push(Alert {
            labels: set(&texts(item.get("labels"), &field("labels"))?),
            annotations: Arc::new(texts(item.get("annotations"), &field("annotations"))?),
            starts_at,
            ends_at,
            is_timeout: false,
            updated_at: now,
            generator_url: item.get("generatorURL").and_then(Value::as_str).unwrap_or_default().into(),
        });
    }
    out.sort_by(|a, b| quiver_alerting::labels::compare_alerts(&a.labels, &b.labels));
    Ok(out)
}

fn text_of<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a str, Problem> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Problem::field(format!("/{name}"), "INVALID_TYPE", "a text is wanted")),
    }
}

fn template_problem(line: u32, column: u32, text: &str) -> Problem {
    let text = brief(text);
    let error = json!({"field": "/text", "code": "INVALID_TEMPLATE", "message": text, "line": line, "column": column});
    // The whole error is included, since it contains the position.
    Problem::new(ProblemKind::Invalid, "INVALID_TEMPLATE", text).with("errors", json!([error]))
}

async fn templates_test(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = async {
        let fields = ["text", "alerts", "groupLabels", "routeLabels", "receiver", "html"];
        let body = object_of(&state, request, &fields).await?;
        let text = text_of(&body, "text")?;
        if text.is_empty() {
            return Err(Problem::field("/text", "REQUIRED", "a template is wanted"));
        }
        let router = &state.alertd.router;
        let now = router.now();
        let (alerts, url) = (alerts_of(body.get("alerts"), now)?, router.external_url().to_owned());
        let group_labels = set(&texts(body.get("groupLabels"), "/groupLabels")?);
        let route_labels = texts(body.get("routeLabels"), "/routeLabels")?;
        let receiver = text_of(&body, "receiver")?.to_owned();
        let mut templates = router.policy().templates.clone();
        templates.add("test", text).map_err(|e| template_problem(e.line, e.column, &e.to_string()))?;
        let html = body.get("html").and_then(Value::as_bool).unwrap_or(false);
        let budget = Budget::of_message(alerts.len());
        let place = Arc::clone(&state.capacity.places.templates).acquire_owned().await.map_err(Problem::internal)?;
        // Many alerts take a while, so this runs on a blocking thread.
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            let data = MessageData {
                receiver: &receiver,
                alerts: &alerts,
                group_labels: &group_labels,
                route_labels: &route_labels,
                reason: "",
                external_url: &url,
                now_ns: now,
            };
            // As in a message: those that fail are not there.
            let texts = data.route_texts(&templates, &mut |_, _| ());
            let data = MessageData { route_labels: &texts, ..data }.to_value();
            let (now_ns, route_labels) = (i128::from(now), Some(RouteLabels::Texts(&texts)));
            let host = TemplateEnvironment { query: None, now_ns, external_url: &url, route_labels };
            let options = Options { host, budget, ..Options::default() };
            if html { templates.run_html("test", &data, &options) } else { templates.run("test", &data, &options) }
        });
        let shown = work.await.map_err(Problem::internal)?;
        let output = shown.map_err(|e| template_problem(e.line, e.column, &e.to_string()))?;
        Ok(json!({"output": output}))
    };
    let outcome = outcome.await;
    answer(&state, outcome)
}

/// The alert of a test that gives none.
fn sample_alert(now: i64) -> Alert {
    Alert {
        labels: LabelSet::from_pairs([("alertname", "TestAlert"), ("severity", "info")]),
        annotations: Arc::new([("summary".to_owned(), "a test of a receiver".to_owned())].into()),
        starts_at: now,
        ends_at: i64::MAX,
        is_timeout: false,
        updated_at: now,
        generator_url: Arc::default(),
    }
}

/// Makes a policy with only this receiver and the globals of the live policy.
fn receiver_policy(receiver: &Value, live: &Policy) -> Result<Policy, Problem> {
    let mut receiver = receiver.clone();
    let Some(map) = receiver.as_object_mut() else {
        return Err(Problem::field("/receiver", "REQUIRED", "a receiver is wanted: an object"));
    };
    let name = map.entry("name").or_insert_with(|| "test".into()).clone();
    let text = yaml::write(&json!({"route": {"receiver": name}, "receivers": [receiver]}));
    let refused = |code: &'static str, errors: Vec<String>| {
        Problem::invalid(errors.into_iter().map(|e| FieldError::new("/receiver", code, e)).collect())
    };
    let config = Config::load_with(&text, &live.config.global)
        .map_err(|problems| refused("INVALID_VALUE", problems.iter().map(ToString::to_string).collect()))?;
    let unsupported = undelivered(&config);
    if !unsupported.is_empty() {
        return Err(refused("UNSUPPORTED", unsupported));
    }
    kept_secrets::check_tried(&receiver, &config, &live.config)?;
    Policy::with(&text, config, &|_| Ok(Vec::new())).map_err(|errors| refused("INVALID_VALUE", errors))
}

async fn receivers_test(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let mode = change_mode(request.uri().query());
    let outcome = async {
        // The receiver is in a field of its own, or its fields are next to `alerts`.
        let own: Vec<&str> = ["name", "labels"].into_iter().chain(RECEIVERS.fields.iter().map(|f| f.name)).collect();
        let known: Vec<&str> = own.iter().copied().chain(["receiver", "alerts"]).collect();
        let mut body = object_of(&state, request, &known).await?;
        let given = body.remove("receiver").filter(|receiver| !receiver.is_null());
        let beside: Map<String, Value> =
            own.iter().filter_map(|name| body.remove_entry(*name)).filter(|(_, value)| !value.is_null()).collect();
        let receiver = match (given, beside.is_empty()) {
            (Some(receiver), true) => receiver,
            (None, false) => Value::Object(beside),
            (None, true) => return Err(Problem::field("/receiver", "REQUIRED", "a receiver is wanted")),
            (Some(_), false) => {
                return Err(Problem::field("/receiver", "INVALID_VALUE", "a receiver is given more than once"));
            }
        };
        receiver_results(&state, &receiver, body.get("alerts"), mode).await
    };
    let outcome = outcome.await;
    with_dry_run(answer(&state, outcome), mode)
}

/// Sends a message to each integration of a receiver, which is named or given as a whole. A dry run checks everything
/// and sends nothing.
pub(crate) async fn receiver_results(
    state: &AppState,
    receiver: &Value,
    alerts: Option<&Value>,
    mode: ChangeMode,
) -> Outcome {
    let router = &state.alertd.router;
    let live = router.policy();
    let (policy, name) = match receiver {
        Value::String(name) => (Policy::clone(&live), name.clone()),
        own => {
            let policy = receiver_policy(own, &live)?;
            let name = policy.config.receivers.first().map(|r| r.name.clone()).unwrap_or_default();
            (policy, name)
        }
    };
    let receiver = policy
        .config
        .receiver(&name)
        .ok_or_else(|| Problem::field("/receiver", "UNKNOWN_REFERENCE", format!("there is no receiver `{name}`")))?;
    let now = router.now();
    let mut alerts = alerts_of(alerts, now)?;
    if alerts.is_empty() {
        alerts.push(sample_alert(now));
    }
    let message = Message {
        receiver: name.clone(),
        group_key: "{}:{test=\"true\"}".to_owned(),
        group_labels: LabelSet::from_pairs([("test", "true")]),
        route_labels: BTreeMap::new(),
        reason: "first notification".to_owned(),
        alerts,
        now,
        external_url: router.external_url().to_owned(),
        instance: router.instance().to_owned(),
        templates: live.templates.clone(),
        said: BTreeMap::new(),
    };
    let mut results = Vec::new();
    for integration in &receiver.integrations {
        if mode.is_dry_run() {
            results.push(json!({
                "integration": integration.kind.name, "index": integration.idx, "ok": false, "httpStatus": null,
                "error": "not sent: a dry run", "durationMs": 0,
            }));
            continue;
        }
        let began = Instant::now();
        let outcome = router.try_message(&message, integration).await;
        let (status, error) = match &outcome {
            Ok(status) => (*status, None),
            Err(failure) => (failure.status, Some(failure.text.as_str())),
        };
        results.push(json!({
            "integration": integration.kind.name, "index": integration.idx, "ok": outcome.is_ok(),
            "httpStatus": status, "error": error,
            "durationMs": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }));
    }
    Ok(json!({"results": results}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_alerts() {
        let read = |value: Value| time_of(Some(&value), "/t", 7);
        assert_eq!(read(Value::Null).ok(), Some(7));
        assert_eq!(read(json!(1.5)).ok(), Some(1_500_000_000));
        assert_eq!(read(json!("1970-01-01T00:00:02Z")).ok(), Some(2_000_000_000));
        assert_eq!(read(json!("soon")).unwrap_err().errors[0].field, "/t");
        let alerts = json!([{"labels": {"b": "1"}}, {"labels": {"a": "1"}, "status": "resolved"}]);
        let alerts = alerts_of(Some(&alerts), 9).unwrap();
        // Alerts without a label sort first, as in Alertmanager.
        assert_eq!(alerts.iter().map(|a| a.is_resolved(9)).collect::<Vec<_>>(), [false, true]);
        let told = alerts_of(Some(&json!([{"labels": {"a": 1}}])), 9).unwrap_err();
        assert_eq!((told.errors[0].field.as_str(), told.errors[0].code), ("/alerts/0/labels/a", "INVALID_TYPE"));
        assert_eq!(alerts_of(Some(&json!([{"status": "x"}])), 9).unwrap_err().errors[0].code, "INVALID_VALUE");
    }

    #[test]
    fn receivers_of_a_test() {
        let live = Policy::load(
            "global: {slack_api_url: 'http://h/s'}\nroute: {receiver: a}\nreceivers: [{name: a}]\n",
            &|_| Ok(Vec::new()),
        )
        .unwrap();
        let own = json!({"slack_configs": [{"channel": "c"}]});
        let policy = receiver_policy(&own, &live).unwrap();
        let integration = &policy.config.receivers[0].integrations[0];
        assert_eq!((integration.kind.name, integration.options.text("api_url")), ("slack", "http://h/s"));
        let code = |own: Value| receiver_policy(&own, &live).unwrap_err().errors[0].code;
        assert_eq!(code(json!({"name": "x", "foo": 1})), "INVALID_VALUE");
        assert_eq!(code(json!({"sns_configs": [{"topic_arn": "x", "sigv4": {"region": "r"}}]})), "UNSUPPORTED");
        let by_reference = json!({"url": "http://h", "http_config": {"basic_auth": {"password_ref": "x"}}});
        assert_eq!(code(json!({"webhook_configs": [by_reference]})), "UNSUPPORTED");
    }

    #[test]
    fn times_are_texts_or_seconds() {
        let check = |value: Value, expected: Option<i64>| {
            let told = time_of(Some(&value), "/t", 7);
            let code = told.as_ref().err().map(|problem| (problem.errors[0].field.as_str(), problem.errors[0].code));
            assert_eq!(code, expected.is_none().then_some(("/t", "INVALID_VALUE")), "{value}");
            assert_eq!(told.ok(), expected, "{value}");
        };
        check(json!(0), Some(0));
        check(json!(-1), Some(-1_000_000_000));
        check(json!("5"), Some(5_000_000_000));
        check(json!("1.0006"), Some(1_001_000_000));
        check(json!("1e3"), Some(1_000_000_000_000));
        check(json!("1970-01-01T00:00:00.000000001Z"), Some(1));
        check(json!("1970-01-01T02:00:00+02:00"), Some(0));
        for wrong in [
            json!(""),
            json!(" 5"),
            json!("NaN"),
            json!("inf"),
            json!("1970-01-01"),
            json!("1970-01-01T00:00:00"),
            // 64-bit nanoseconds end in 2262.
            json!("2263-01-01T00:00:00Z"),
            json!(1e10),
            json!(true),
            json!([5]),
            json!({}),
        ] {
            check(wrong, None);
        }
        assert_eq!(time_of(None, "/t", 7).ok(), Some(7));
    }

    #[test]
    fn alerts_of_a_test() {
        let told = |value: Value| {
            let problem = alerts_of(Some(&value), 9).expect_err("a wrong one");
            (problem.errors[0].field.clone(), problem.errors[0].code)
        };
        let check = |value: Value, field: &str, code: &'static str| {
            assert_eq!(told(value.clone()), (field.to_owned(), code), "{value}");
        };
        check(json!({}), "/alerts", "INVALID_TYPE");
        check(json!("a"), "/alerts", "INVALID_TYPE");
        check(json!([{}, 5]), "/alerts/1", "INVALID_TYPE");
        check(json!([null]), "/alerts/0", "INVALID_TYPE");
        check(json!([{"status": 5}]), "/alerts/0/status", "INVALID_VALUE");
        check(json!([{"status": ""}]), "/alerts/0/status", "INVALID_VALUE");
        check(json!([{"status": "Firing"}]), "/alerts/0/status", "INVALID_VALUE");
        check(json!([{"labels": []}]), "/alerts/0/labels", "INVALID_TYPE");
        check(json!([{"annotations": {"a": null}}]), "/alerts/0/annotations/a", "INVALID_TYPE");
        check(json!([{"startsAt": "soon"}]), "/alerts/0/startsAt", "INVALID_VALUE");
        check(json!([{"status": "resolved", "endsAt": "soon"}]), "/alerts/0/endsAt", "INVALID_VALUE");
        check(json!(vec![json!({}); ALERTS_MAX + 1]), "/alerts", "LIMIT_EXCEEDED");
        assert_eq!(alerts_of(Some(&json!(vec![json!({}); ALERTS_MAX])), 9).map(|all| all.len()).ok(), Some(ALERTS_MAX));
        for none in [None, Some(json!(null)), Some(json!([]))] {
            assert_eq!(alerts_of(none.as_ref(), 9).map(|all| all.len()).ok(), Some(0), "{none:?}");
        }
        let one = |value: Value| alerts_of(Some(&json!([value])), 9).expect("a good one").remove(0);
        let plain = one(json!({"labels": {"a": "1", "b": ""}, "status": null, "generatorURL": "http://h"}));
        assert_eq!((plain.starts_at, plain.ends_at, &*plain.generator_url), (9, i64::MAX, "http://h"));
        assert_eq!(plain.labels.iter().collect::<Vec<_>>(), [("a", "1")]);
        // A resolved alert has ended by now, whatever the request says; a firing one has no end.
        assert_eq!(one(json!({"status": "resolved", "endsAt": "2030-01-01T00:00:00Z"})).ends_at, 9);
        assert_eq!(one(json!({"status": "resolved", "endsAt": "1969-12-31T23:59:59Z"})).ends_at, -1_000_000_000);
        assert_eq!(one(json!({"endsAt": "1969-12-31T23:59:59Z"})).ends_at, i64::MAX);
    }

    #[test]
    fn texts_of_a_body() {
        let body = json!({"a": "x", "b": null, "c": 5});
        let body = body.as_object().expect("an object");
        assert_eq!(
            (text_of(body, "a").ok(), text_of(body, "b").ok(), text_of(body, "d").ok()),
            (Some("x"), Some(""), Some(""))
        );
        let problem = text_of(body, "c").expect_err("a number");
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/c", "INVALID_TYPE"));
        let problem = template_problem(3, 7, "unexpected }}");
        assert_eq!((problem.code, problem.detail.as_str()), ("INVALID_TEMPLATE", "unexpected }}"));
        assert_eq!(problem.more["errors"][0]["line"], json!(3));
        assert_eq!(problem.more["errors"][0]["column"], json!(7));
        assert_eq!(problem.more["errors"][0]["field"], json!("/text"));
    }
}
