//! Rules and their alerts as Prometheus shows them: `rules` and `alerts` below `/metrics-api/api/v1`.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`rules`, `alerts`). `file` is the file or namespace of a group.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, SecondsFormat};
use quiver_alertd::rules::GroupView;
use quiver_alerting::rules::{ActiveAlert, AlertState, ElementValue, Health, Language, Rule, RuleKind, RuleStatus};
use quiver_promql::{parser, print};
use quiver_types::{Access, Domain, LabelSet, Matcher, Millis, Result, Rights};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::encode::prometheus::{Envelope, error_response, success};
use crate::metrics::phases;
use crate::metrics_api::labels::selectors;
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/v1/rules", get(rules)).route("/api/v1/alerts", get(alerts))
}

fn answer(data: Result<Value>, route: &str) -> Response {
    match data {
        Ok(data) => success(&Envelope::default(), data.to_string().as_bytes()),
        Err(e) => error_response(&e, route),
    }
}

/// Formats a time with all its digits; `None` as the year 1, as Go does.
fn time(ms: Option<Millis>) -> String {
    let time = ms.and_then(DateTime::from_timestamp_millis);
    time.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |t| t.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// Formats a number with an exponent, as Go does.
fn exponent(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".to_owned() } else { if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned() };
    }
    let text = format!("{value:e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |rest| ('-', rest));
    format!("{digits}e{sign}{power:0>2}")
}

fn labels(labels: &LabelSet) -> Value {
    Value::Object(labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

/// Parameters that select rules.
#[derive(Debug, Default)]
struct Filter {
    kind: Option<RuleKind>,
    names: Vec<String>,
    groups: Vec<String>,
    files: Vec<String>,
    selectors: Vec<Vec<Matcher>>,
    with_alerts: bool,
    page: Option<(usize, Option<String>)>,
}

impl Filter {
    async fn read(state: &AppState, params: &Params) -> Result<Self> {
        let kind = match params.get("type").map(str::to_lowercase).as_deref() {
            None => None,
            Some("alert") => Some(RuleKind::Alert),
            Some("record") => Some(RuleKind::Record),
            Some(other) => return Err(invalid("type", &format!("not supported value {other:?}"))),
        };
        let with_alerts = match params.get("exclude_alerts").map(str::to_lowercase).as_deref() {
            None | Some("0" | "f" | "false") => true,
            Some("1" | "t" | "true") => false,
            Some(text) => {
                let why =
                    format!("error converting exclude_alerts: strconv.ParseBool: parsing {text:?}: invalid syntax");
                return Err(invalid("exclude_alerts", &why));
            }
        };
        let token = params.get("group_next_token");
        let page = match params.get("group_limit").map(str::parse::<i64>) {
            None if token.is_some() => {
                let text = "group_limit needs to be present in order to paginate over the groups";
                return Err(invalid("group_next_token", text));
            }
            None => None,
            Some(Err(_)) => return Err(invalid("group_limit", "group_limit needs to be a valid number")),
            Some(Ok(n)) if n <= 0 => return Err(invalid("group_limit", "group_limit needs to be greater than 0")),
            Some(Ok(n)) => Some((n as usize, token.map(str::to_owned))),
        };
        let all = |name: &str| params.all(name).map(str::to_owned).collect();
        let ctx = state.context(phases::Language::Series);
        let (asked, inner) = (params.clone(), ctx.clone());
        let selectors = state.engine.run(&ctx, async move { selectors(&asked, &inner) }).await?;
        Ok(Self {
            kind,
            names: all("rule_name[]"),
            groups: all("rule_group[]"),
            files: all("file[]"),
            selectors,
            with_alerts,
            page,
        })
    }

    fn wants_group(&self, view: &GroupView) -> bool {
        let listed = |list: &[String], text: &str| list.is_empty() || list.iter().any(|t| t == text);
        listed(&self.groups, &view.group.model.name) && listed(&self.files, &view.file)
    }

    fn wants(&self, rule: &Rule) -> bool {
        let get = |name: &str| rule.labels.get(name).map_or("", String::as_str);
        let fits = |selector: &Vec<Matcher>| selector.iter().all(|m| m.matches(get(&m.name)));
        self.kind.is_none_or(|kind| kind == rule.kind)
            && (self.names.is_empty() || self.names.contains(&rule.name))
            && (self.selectors.is_empty() || self.selectors.iter().any(fits))
    }
}

/// Shown instead of an error if the caller may not see everything that the rule reads, since errors name series.
const WITHHELD: &str = "the rule reads more than you may view: whoever may is told why it fails";

/// What a caller may see.
struct Sight<'a> {
    access: Access,
    rights: Arc<Rights>,
    service_labels: &'a [String],
}

impl<'a> Sight<'a> {
    fn of(state: &'a AppState) -> Self {
        Self {
            access: state.access(Domain::Alerting),
            rights: Arc::clone(&state.identity().rights),
            service_labels: state.alertd.router.service_labels(),
        }
    }

    /// Whether the caller may see everything that the queries of a rule read.
    fn shows_what_reads(&self, rule: &Rule, rights: Option<&Rights>) -> bool {
        let domain = match rule.language {
            Language::Promql => Some(Domain::Metrics),
            Language::Logsql => Some(Domain::Logs),
            Language::Olap => None,
        };
        rights.is_none_or(|rights| self.rights.show_all_of(rights, domain))
    }

    fn alert(&self, alert: &ActiveAlert) -> bool {
        self.access.is_full() || self.access.allows(alert.labels.service(self.service_labels))
    }

    /// Whether the caller may see a rule: it belongs to the service in its labels.
    fn rule(&self, rule: &Rule) -> bool {
        let pairs = rule.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        self.access.is_full() || self.access.allows(LabelSet::from_pairs(pairs).service(self.service_labels))
    }
}

fn alert(alert: &ActiveAlert) -> Value {
    let value = match &alert.value {
        ElementValue::Float(value) => exponent(*value),
        // As in Prometheus, whose alerts only have a float value.
        ElementValue::Histogram(..) => exponent(0.0),
    };
    let mut out = json!({
        "labels": labels(&alert.labels), "annotations": alert.annotations, "state": alert.state.as_str(),
        "activeAt": time(Some(alert.active_at)), "value": value,
    });
    if let Some(since) = alert.keep_firing_since {
        out["keepFiringSince"] = time(Some(since)).into();
    }
    out
}

fn active<'a>(status: &'a RuleStatus, sight: &'a Sight<'_>) -> impl Iterator<Item = &'a ActiveAlert> {
    status.alerts().filter(|a| a.state != AlertState::Inactive && sight.alert(a))
}

/// A rule as JSON. `rights` are those that its queries run with.
fn rule(status: &RuleStatus, rights: Option<&Rights>, filter: &Filter, sight: &Sight<'_>) -> Value {
    let rule = &status.rule;
    let query = match rule.language {
        Language::Promql => parser::parse(&rule.expr).map_or_else(|_| rule.expr.clone(), |tree| print::print(&tree)),
        _ => rule.expr.clone(),
    };
    let (health, error) = match &status.health {
        Health::Unknown => ("unknown", None),
        Health::Ok => ("ok", None),
        Health::Err(e) => ("err", Some(e)),
    };
    let mut out = json!({
        "name": rule.name, "query": query, "labels": rule.labels, "health": health,
        "evaluationTime": status.evaluation_time.as_secs_f64(), "lastEvaluation": time(status.last_evaluation),
    });
    if let Some(error) = error {
        let told = if sight.shows_what_reads(rule, rights) { error.as_str() } else { WITHHELD };
        out["lastError"] = told.into();
    }
    if rule.kind == RuleKind::Record {
        out["type"] = "recording".into();
        return out;
    }
    let state = match (active(status, sight).map(|a| a.state).max(), &status.health) {
        (Some(state), _) => state.as_str(),
        (None, Health::Unknown) => "unknown",
        (None, _) => "inactive",
    };
    out["type"] = "alerting".into();
    out["state"] = state.into();
    out["duration"] = seconds(rule.for_ms);
    out["keepFiringFor"] = seconds(rule.keep_firing_for_ms);
    out["annotations"] = json!(rule.annotations);
    // Null if they are not wanted, as in Prometheus.
    out["alerts"] = if filter.with_alerts { active(status, sight).map(alert).collect() } else { Value::Null };
    out
}

/// Seconds; an integer if there is no fraction.
fn seconds(ms: Millis) -> Value {
    if ms % 1000 == 0 { (ms / 1000).into() } else { (ms as f64 / 1000.0).into() }
}

/// The token that names a group for the next page.
fn token(view: &GroupView) -> String {
    format!("{:016x}", xxh3_64(format!("{}\u{0}{}", view.file, view.group.model.name).as_bytes()))
}

fn group(view: &GroupView, filter: &Filter, sight: &Sight<'_>) -> Option<Value> {
    let all = view.group.rules.iter().enumerate();
    let shown = all.filter(|(_, s)| filter.wants(&s.rule) && sight.rule(&s.rule));
    let rules: Vec<Value> = shown.map(|(n, s)| rule(s, view.rights.get(n), filter, sight)).collect();
    if rules.is_empty() {
        return None;
    }
    Some(json!({
        "name": view.group.model.name, "file": view.file, "rules": rules, "interval": seconds(view.group.interval_ms),
        "limit": view.group.model.limit, "evaluationTime": view.evaluation_time.as_secs_f64(),
        "lastEvaluation": time(view.last_evaluation),
    }))
}

fn listed(views: &[Arc<GroupView>], filter: &Filter, sight: &Sight<'_>) -> Result<Value> {
    let mut waits_for = filter.page.as_ref().and_then(|(_, token)| token.as_deref());
    let mut out = Vec::new();
    for view in views {
        if let Some(wanted) = waits_for {
            if token(view) != wanted {
                continue;
            }
            waits_for = None;
        }
        let Some(shown) = Some(view).filter(|v| filter.wants_group(v)).and_then(|v| group(v, filter, sight)) else {
            continue;
        };
        if filter.page.as_ref().is_some_and(|(limit, _)| out.len() == *limit) {
            return Ok(json!({"groups": out, "groupNextToken": token(view)}));
        }
        out.push(shown);
    }
    if let Some(wanted) = waits_for {
        let text = format!("invalid group_next_token '{wanted}'. were rule groups changed?");
        return Err(invalid("group_next_token", &text));
    }
    Ok(json!({"groups": out}))
}

async fn rules(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let listed = async {
        let params = Params::of(&state, request).await?;
        let filter = Filter::read(&state, &params).await?;
        listed(&state.alertd.rules.views(), &filter, &Sight::of(&state))
    };
    answer(listed.await, "/api/v1/rules")
}

/// The state of the n-th rule of a group, with those alerts that the caller may see. `None` if it is not running yet.
pub(crate) fn state_of(app: &AppState, namespace: &str, group: &str, n: usize) -> Option<Value> {
    let sight = Sight::of(app);
    let views = app.alertd.rules.views();
    let view = views.iter().find(|v| v.file == namespace && v.group.model.name == group)?;
    let (status, rights) = (view.group.rules.get(n)?, view.rights.get(n));
    let mut shown = rule(status, rights, &Filter { with_alerts: true, ..Filter::default() }, &sight);
    shown["samples"] = json!(sight.shows_what_reads(&status.rule, rights).then_some(status.samples));
    let keys = ["health", "state", "lastError", "lastEvaluation", "evaluationTime", "samples", "alerts"];
    let picked = keys.into_iter().map(|key| (key.to_owned(), shown.get(key).cloned().unwrap_or(Value::Null)));
    Some(Value::Object(picked.collect()))
}

/// When a group was last evaluated, how long that took, and how many evaluations were missed; nulls while it is not
/// running.
pub(crate) fn group_times(app: &AppState, namespace: &str, group: &str) -> Map<String, Value> {
    let views = app.alertd.rules.views();
    let view = views.iter().find(|v| v.file == namespace && v.group.model.name == group);
    let last = view.and_then(|v| v.last_evaluation).map(|at| time(Some(at)));
    let spent = view.filter(|v| v.last_evaluation.is_some()).map(|v| v.evaluation_time.as_secs_f64());
    let pairs = [
        ("lastEvaluation", json!(last)),
        ("evaluationTime", json!(spent)),
        ("missedIterations", json!(view.map_or(0, |v| v.missed))),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

async fn alerts(State(state): State<Arc<AppState>>) -> Response {
    let sight = Sight::of(&state);
    let mut out: Vec<Value> = Vec::new();
    for view in state.alertd.rules.views() {
        for status in &view.group.rules {
            out.extend(active(status, &sight).map(alert));
        }
    }
    answer(Ok(json!({"alerts": out})), "/api/v1/alerts")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quiver_alerting::rules::{Element, Engine, Group, Setting, Written};

    use super::*;

    #[test]
    fn numbers_and_times() {
        let check = |value: f64, expected: &str| assert_eq!(exponent(value), expected);
        check(1.0, "1e+00");
        check(0.00125, "1.25e-03");
        check(-1234.5, "-1.2345e+03");
        check(1e100, "1e+100");
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Inf");
        assert_eq!(time(None), "0001-01-01T00:00:00Z");
        assert_eq!(time(Some(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert_eq!((seconds(60_000), seconds(1500)), (json!(60), json!(1.5)));
    }

    /// An engine with the same answer to every query.
    struct Fixed(Result<Vec<Element>, String>);

    impl Engine for Fixed {
        fn query(&self, _: usize, _: Language, _: &str, _: Millis) -> Result<Vec<Element>, String> {
            self.0.clone()
        }

        fn write(&self, _: &[Written]) -> Result<(), String> {
            Ok(())
        }
    }

    const RULES: &str = r#"
groups:
- name: g
  interval: 30s
  limit: 7
  rules:
  - {alert: Down, expr: "sum( up )==0", for: 90s, keep_firing_for: 1500ms, labels: {service: cart}, annotations: {x: "y"}}
  - {record: "a:b", expr: "1"}
- name: h
  rules:
  - {alert: Other, expr: "up", labels: {service: pay, severity: page}}
"#;

    /// The groups above, each evaluated at these times.
    fn views(outcome: Result<Vec<Element>, String>, times: &[Millis]) -> Vec<Arc<GroupView>> {
        let engine = Fixed(outcome);
        let read = quiver_alerting::rules::read(RULES, &crate::languages::Languages).expect("rules");
        let view = |model| {
            let mut group = Group::new(model, 60_000);
            for at in times {
                group.evaluate(*at, &Setting::default(), &engine);
            }
            let rights: Vec<Rights> = group.rules.iter().map(|_| Rights::full()).collect();
            Arc::new(GroupView {
                file: "f".to_owned(),
                group,
                rights: rights.into(),
                last_evaluation: times.last().copied(),
                evaluation_time: Duration::from_millis(1500),
                missed: 0,
            })
        };
        read.groups.into_iter().map(view).collect()
    }

    fn elements(services: &[&str]) -> Vec<Element> {
        let of = |service: &&str| LabelSet::from_pairs([("instance", *service)]);
        services.iter().map(|one| Element { labels: of(one), value: ElementValue::Float(0.0) }).collect()
    }

    fn sight(access: Access, service_labels: &[String]) -> Sight<'_> {
        Sight { access, rights: Arc::new(Rights::full()), service_labels }
    }

    #[test]
    fn rules_are_shown_as_they_go() {
        let names = ["service".to_owned()];
        let sight = sight(Access::full(), &names);
        let filter = Filter { with_alerts: true, ..Filter::default() };
        let show = |outcome: Result<Vec<Element>, String>, times: &[Millis]| {
            let mut shown = listed(&views(outcome, times), &filter, &sight).expect("a list")["groups"][0].clone();
            for rule in shown["rules"].as_array_mut().expect("rules") {
                assert!(rule["evaluationTime"].is_number());
                rule.as_object_mut().expect("a rule").remove("evaluationTime");
            }
            shown
        };
        let alert = |state: &str, at: &str, keep: Option<&str>| {
            let mut alert = json!({
                "labels": {"alertname": "Down", "instance": "i", "service": "cart"}, "annotations": {"x": "y"},
                "state": state, "activeAt": at, "value": "0e+00",
            });
            if let Some(since) = keep {
                alert["keepFiringSince"] = json!(since);
            }
            alert
        };
        let group = |health: &str, last: &str, state: &str, alerts: Value| {
            json!({
                "name": "g", "file": "f", "interval": 30, "limit": 7, "evaluationTime": 1.5, "lastEvaluation": last,
                "rules": [
                    {
                        "name": "Down", "query": "sum(up) == 0", "labels": {"service": "cart"}, "health": health,
                        "lastEvaluation": last, "type": "alerting", "state": state, "duration": 90,
                        "keepFiringFor": 1.5, "annotations": {"x": "y"}, "alerts": alerts,
                    },
                    {
                        "name": "a:b", "query": "1", "labels": {}, "health": health, "lastEvaluation": last,
                        "type": "recording",
                    },
                ],
            })
        };
        let never = "0001-01-01T00:00:00Z";
        assert_eq!(show(Ok(Vec::new()), &[]), group("unknown", never, "unknown", json!([])));
        let (first, second) = ("1970-01-01T00:01:00Z", "1970-01-01T00:02:30.001Z");
        assert_eq!(show(Ok(Vec::new()), &[60_000]), group("ok", first, "inactive", json!([])));
        let pending = json!([alert("pending", first, None)]);
        assert_eq!(show(Ok(elements(&["i"])), &[60_000]), group("ok", first, "pending", pending));
        let firing = json!([alert("firing", first, None)]);
        assert_eq!(show(Ok(elements(&["i"])), &[60_000, 150_001]), group("ok", second, "firing", firing));
        let failed = show(Err("no such thing".to_owned()), &[60_000]);
        for rule in failed["rules"].as_array().expect("rules") {
            assert_eq!((&rule["health"], &rule["lastError"]), (&json!("err"), &json!("no such thing")));
        }
    }

    /// Errors name series: a caller who may not see what a rule reads learns only that there is an error.
    #[test]
    fn errors_are_told_to_who_may_view_what_is_read() {
        let names = ["service".to_owned()];
        let views = views(Err("metric secret_total".to_owned()), &[1000]);
        let told = |rights: Rights| {
            let sight = Sight { access: Access::full(), rights: Arc::new(rights), service_labels: &names };
            listed(&views, &Filter::default(), &sight).expect("a list")["groups"][0]["rules"][0]["lastError"].clone()
        };
        let view = |domain: Domain, services: &str| {
            let services = quiver_types::Services::parse(services).expect("services");
            Rights::narrowed(&[quiver_types::Triple::new(quiver_types::Right::View, Some(domain), services)], None)
        };
        assert_eq!(told(Rights::full()), "metric secret_total");
        assert_eq!(told(view(Domain::Metrics, "*")), "metric secret_total");
        assert_eq!(told(view(Domain::Metrics, "cart")), WITHHELD);
        assert_eq!(told(view(Domain::Logs, "*")), WITHHELD);
    }

    #[test]
    fn a_caller_sees_rules_and_alerts_of_its_services() {
        let names = ["service".to_owned()];
        let views = views(Ok(elements(&["i", "j"])), &[1000]);
        let filter = Filter { with_alerts: true, ..Filter::default() };
        let shown = |access: Access| {
            let all = listed(&views, &filter, &sight(access, &names)).expect("a list");
            let groups = all["groups"].as_array().expect("groups").clone();
            let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
            rules.map(|rule| (rule["name"].clone(), rule["alerts"].as_array().map_or(0, Vec::len))).collect::<Vec<_>>()
        };
        let all = [(json!("Down"), 2), (json!("a:b"), 0), (json!("Other"), 2)];
        assert_eq!(shown(Access::full()), all);
        // A rule without a service is only visible to callers who see all services.
        assert_eq!(shown(Access::services(["cart"])), all[..1]);
        assert_eq!(shown(Access::services(["pay"])), all[2..]);
        assert!(shown(Access::services(["other"])).is_empty());
    }

    #[test]
    fn filters_choose_groups_and_rules() {
        let names = ["service".to_owned()];
        let (views, sight) = (views(Ok(Vec::new()), &[1000]), sight(Access::full(), &names));
        let chosen = |filter: Filter| -> Vec<String> {
            let all = listed(&views, &filter, &sight).expect("a list");
            let groups = all["groups"].as_array().expect("groups").clone();
            let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
            rules.map(|rule| rule["name"].as_str().expect("a name").to_owned()).collect()
        };
        let own = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
        let base = Filter::default;
        let page = Matcher::equal("severity", "page");
        let other = Matcher::new("service", quiver_types::MatchOp::NotEqual, "pay").expect("a matcher");
        for (filter, expected) in [
            (base(), own(&["Down", "a:b", "Other"])),
            (Filter { kind: Some(RuleKind::Alert), ..base() }, own(&["Down", "Other"])),
            (Filter { kind: Some(RuleKind::Record), ..base() }, own(&["a:b"])),
            (Filter { names: own(&["Other", "none"]), ..base() }, own(&["Other"])),
            (Filter { groups: own(&["g"]), ..base() }, own(&["Down", "a:b"])),
            (Filter { files: own(&["f"]), groups: own(&["h"]), ..base() }, own(&["Other"])),
            (Filter { files: own(&["F"]), ..base() }, own(&[])),
            (Filter { selectors: vec![vec![page.clone()]], ..base() }, own(&["Other"])),
            // One of the selectors must match, with all of its matchers; a missing label is empty.
            (Filter { selectors: vec![vec![other.clone()]], ..base() }, own(&["Down", "a:b"])),
            (Filter { selectors: vec![vec![page.clone(), other.clone()]], ..base() }, own(&[])),
            (Filter { selectors: vec![vec![page], vec![other]], ..base() }, own(&["Down", "a:b", "Other"])),
        ] {
            let shown = format!("{filter:?}");
            assert_eq!(chosen(filter), expected, "{shown}");
        }
    }

    #[test]
    fn pages_of_groups() {
        let names = ["service".to_owned()];
        let (views, sight) = (views(Ok(Vec::new()), &[1000]), sight(Access::full(), &names));
        let page = |limit: usize, from: Option<String>| {
            listed(&views, &Filter { page: Some((limit, from)), ..Filter::default() }, &sight)
        };
        let names_of = |page: &Value| -> Vec<Value> {
            page["groups"].as_array().expect("groups").iter().map(|group| group["name"].clone()).collect()
        };
        let first = page(1, None).expect("a page");
        assert_eq!(names_of(&first), ["g"]);
        let token = first["groupNextToken"].as_str().expect("there is more").to_owned();
        let second = page(1, Some(token.clone())).expect("a page");
        assert_eq!((names_of(&second), second.get("groupNextToken")), (vec![json!("h")], None));
        for limit in [2, 3] {
            let whole = page(limit, None).expect("a page");
            assert_eq!((names_of(&whole).len(), whole.get("groupNextToken")), (2, None), "{limit}");
        }
        let unknown = page(1, Some("x".to_owned())).expect_err("no such token").message;
        assert!(unknown.contains("invalid group_next_token 'x'. were rule groups changed?"), "{unknown}");
        // A token identifies a group by its file, too.
        let mut moved = GroupView::clone(&views[1]);
        moved.file = "other".to_owned();
        assert_ne!(super::token(&moved), token);
    }

    #[test]
    fn numbers_have_an_exponent_of_two_digits_at_least() {
        for (value, expected) in [
            (0.0, "0e+00"),
            (-0.0, "-0e+00"),
            (10.0, "1e+01"),
            (0.1, "1e-01"),
            (123_456_789.0, "1.23456789e+08"),
            (1e-300, "1e-300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(exponent(value), expected);
        }
        assert_eq!(seconds(-500), json!(-0.5));
        assert_eq!(time(Some(i64::MAX)), time(None), "what is no time");
    }
}
