use std::time::Duration;

use quiver_alerting::rules::{Element, Engine, EvaluationSettings, Group, RuleSample};

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

    fn write(&self, _: &[RuleSample]) -> Result<(), String> {
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
    let read = quiver_alerting::rules::read(RULES, &crate::expression_checks::Languages).expect("rules");
    let view = |model| {
        let mut group = Group::new(model, 60_000);
        for at in times {
            group.evaluate(*at, &EvaluationSettings::default(), &engine);
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

fn sight(access: Access) -> Sight {
    Sight { access, rights: Arc::new(Rights::full()), service_labels: vec!["service".to_owned()] }
}

/// What a caller is answered.
fn told(views: &[Arc<GroupView>], filter: &Filter, sight: &Sight) -> Result<Value> {
    let mut text = Text::new("", 1 << 20, "");
    listed(&mut text, views, (filter, sight), &|| Ok(()))?;
    Ok(serde_json::from_slice(&text.into_bytes()).expect("JSON"))
}

#[test]
fn rules_are_shown_as_they_go() {
    let sight = sight(Access::full());
    let filter = Filter { with_alerts: true, ..Filter::default() };
    let show = |outcome: Result<Vec<Element>, String>, times: &[Millis]| {
        let mut shown = told(&views(outcome, times), &filter, &sight).expect("a list")["groups"][0].clone();
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
    let views = views(Err("metric secret_total".to_owned()), &[1000]);
    let told = |rights: Rights| {
        let sight =
            Sight { access: Access::full(), rights: Arc::new(rights), service_labels: vec!["service".to_owned()] };
        told(&views, &Filter::default(), &sight).expect("a list")["groups"][0]["rules"][0]["lastError"].clone()
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
    let views = views(Ok(elements(&["i", "j"])), &[1000]);
    let filter = Filter { with_alerts: true, ..Filter::default() };
    let shown = |access: Access| {
        let all = told(&views, &filter, &sight(access)).expect("a list");
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
    let (views, sight) = (views(Ok(Vec::new()), &[1000]), sight(Access::full()));
    let chosen = |filter: Filter| -> Vec<String> {
        let all = told(&views, &filter, &sight).expect("a list");
        let groups = all["groups"].as_array().expect("groups").clone();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
        rules.map(|rule| rule["name"].as_str().expect("a name").to_owned()).collect()
    };
    let own = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<HashSet<String>>();
    let base = Filter::default;
    let page = Matcher::equal("severity", "page");
    let other = Matcher::new("service", quiver_types::MatchOp::NotEqual, "pay").expect("a matcher");
    for (filter, expected) in [
        (base(), own(&["Down", "a:b", "Other"])),
        (Filter { kind: Some(RuleKind::Alert), ..base() }, own(&["Down", "Other"])),
        (Filter { kind: Some(RuleKind::Record), ..base() }, own(&["a:b"])),
        (Filter { names: set(&["Other", "none"]), ..base() }, own(&["Other"])),
        (Filter { groups: set(&["g"]), ..base() }, own(&["Down", "a:b"])),
        (Filter { files: set(&["f"]), groups: set(&["h"]), ..base() }, own(&["Other"])),
        (Filter { files: set(&["F"]), ..base() }, own(&[])),
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
    let (views, sight) = (views(Ok(Vec::new()), &[1000]), sight(Access::full()));
    let page = |limit: usize, from: Option<String>| {
        told(&views, &Filter { page: Some((limit, from)), ..Filter::default() }, &sight)
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

/// With very many alerts a list takes long and much: it ends with its client, and with the size that an answer may have.
#[test]
fn lists_of_rules_have_an_end() {
    let (views, sight) = (views(Ok(elements(&["i", "j"])), &[1000]), sight(Access::full()));
    let filter = Filter { with_alerts: true, ..Filter::default() };
    let made = |bytes_max: usize, steps: usize| {
        let left = std::cell::Cell::new(steps);
        let go_on = || match left.replace(left.get().saturating_sub(1)) {
            0 => Err(Error::new(ErrorKind::Cancelled, "gone")),
            _ => Ok(()),
        };
        let mut text = Text::new("", bytes_max, "fewer");
        listed(&mut text, &views, (&filter, &sight), &go_on).map_err(|e| e.kind)
    };
    // Each group, rule and alert is a step.
    assert_eq!(made(1 << 20, 2 + 3 + 4), Ok(()));
    assert!((0..2 + 3 + 4).all(|steps| made(1 << 20, steps) == Err(ErrorKind::Cancelled)));
    assert_eq!(made(900, 100), Err(ErrorKind::LimitExceeded));
}
