//! Policy cases: how Alertmanager parses a configuration, and what it decides.

use std::path::Path;

use quiver_alerting::config::Config;
use quiver_alerting::inhibition::{InhibitRule, Inhibitor};
use quiver_alerting::intervals::{MinuteRange, read_list};
use quiver_alerting::matcher_fields::ReadContext;
use quiver_alerting::matchers::{parse_classic, parse_utf8, read};
use quiver_alerting::receivers;
use quiver_alerting::routes::{Route, RouteConfig};
use quiver_alerting::template::parse_time;
use quiver_types::{LabelSet, Matcher};
use quiver_yaml as yaml;
use quiver_yaml::problem::Problems;
use serde_json::{Value, json};

use super::{Tally, cases, text};

fn told(outcome: Result<impl Sized, Problems>) -> Result<(), String> {
    outcome.map(drop).map_err(|p| p.to_string())
}

pub(super) fn configurations(folder: &Path, tally: &mut Tally<'_>) {
    let folder = folder.join("am-config");
    for case in cases(&folder.join("cases.json")) {
        let file = std::fs::read_to_string(folder.join(text(&case, "file"))).expect("the file of a case");
        tally.verdict(text(&case, "id"), case["expect"] == "error", told(Config::load(&file)));
    }
}

pub(super) fn receivers(folder: &Path, tally: &mut Tally<'_>) {
    for case in cases(&folder.join("am-receiver.json")) {
        let kind = receivers::kind(text(&case, "integration")).expect("a kind that is known");
        // The entry stands in a receiver with the globals that kinds may need.
        let entry: String = text(&case, "yaml").lines().map(|line| format!("    {line}\n")).collect();
        let file = format!(
            "global: {{smtp_smarthost: 'h:25', smtp_from: 'f@h', victorops_api_key: k, opsgenie_api_key: k}}\nroute: {{receiver: r}}\nreceivers:\n- name: r\n  {}:\n  -\n{entry}",
            kind.field
        );
        tally.verdict(text(&case, "id"), case["expect"] == "error", told(Config::load(&file)));
    }
}

fn labels(value: &Value) -> LabelSet {
    let pairs = value.as_object().into_iter().flatten();
    LabelSet::from_pairs(pairs.map(|(n, v)| (n.as_str(), v.as_str().unwrap_or_default())))
}

/// Says where what is expected of a route differs from it.
fn route_fault(expected: &Value, route: &Route) -> Option<String> {
    let options = &route.options;
    let got = json!({
        "receiver": options.receiver,
        "group_by": options.group_by,
        "group_by_all": options.group_by_all,
        "group_wait_s": options.group_wait_ms as f64 / 1000.0,
        "group_interval_s": options.group_interval_ms as f64 / 1000.0,
        "repeat_interval_s": options.repeat_interval_ms as f64 / 1000.0,
    });
    let fields = expected.as_object().into_iter().flatten();
    let differs = |name: &str, wanted: &Value| match (wanted.as_f64(), got[name].as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() > 1e-9,
        _ => *wanted != got[name],
    };
    fields
        .filter(|(name, wanted)| differs(name, wanted))
        .map(|(name, w)| format!("{name}: {w}, got {}", got[name]))
        .next()
}

pub(super) fn routing(folder: &Path, tally: &mut Tally<'_>) {
    for case in ["am-routing.json", "own-routing.json"].iter().flat_map(|file| cases(&folder.join(file))) {
        let mut problems = Problems::default();
        let node = yaml::read(text(&case, "route_yaml")).expect("YAML").remove(0);
        let config = RouteConfig::read(&node, "/route", &mut ReadContext::default(), &mut problems);
        let tree = Route::new(&config);
        let matching = tree.matching(&labels(&case["labels"]));
        let expected = case["expect"].as_array().cloned().unwrap_or_default();
        let mut fault = (!problems.is_empty()).then(|| problems.to_string());
        if matching.len() != expected.len() {
            fault = fault.or(Some(format!("{} routes expected, got {}", expected.len(), matching.len())));
        }
        fault = fault.or_else(|| expected.iter().zip(&matching).find_map(|(wanted, route)| route_fault(wanted, route)));
        if let Some(keys) = case["keys"].as_array() {
            let got: Vec<Value> = matching.iter().map(|r| json!(r.key)).collect();
            fault = fault.or_else(|| (*keys != got).then(|| format!("keys {keys:?}, got {got:?}")));
        }
        tally.case(text(&case, "id"), fault);
    }
}

pub(super) fn inhibition(folder: &Path, tally: &mut Tally<'_>) {
    for case in cases(&folder.join("am-inhibit.json")) {
        let mut problems = Problems::default();
        let rule = |rule: &Value| {
            let node = yaml::read(&rule.to_string()).expect("JSON is YAML").remove(0);
            InhibitRule::read(&node, "", &mut ReadContext::default(), &mut problems)
        };
        let rules: Vec<InhibitRule> = case["rules"].as_array().into_iter().flatten().map(rule).collect();
        let firing: Vec<LabelSet> = case["firing"].as_array().into_iter().flatten().map(labels).collect();
        let muted = Inhibitor::new(&rules, &firing).inhibited_by(&labels(&case["target"])).is_some();
        let mut fault = (!problems.is_empty()).then(|| problems.to_string());
        if json!(muted) != case["muted"] {
            fault = Some(format!("muted: {muted}"));
        }
        tally.case(text(&case, "id"), fault);
    }
}

fn shown(matchers: &[Matcher]) -> Value {
    matchers.iter().map(|m| json!({"name": m.name, "op": m.op.as_str(), "value": m.value})).collect()
}

pub(super) fn matchers(folder: &Path, tally: &mut Tally<'_>) {
    for case in cases(&folder.join("am-matchers.json")) {
        let (input, parser) = (text(&case, "input"), text(&case, "parser"));
        let mut fault = None;
        let refused = !case["error"].is_null();
        let mut judge = |name: &str, got: Result<Vec<Matcher>, String>| {
            let wrong = match (&got, refused) {
                (Ok(got), false) => (shown(got) != case["expect"]).then(|| format!("{name}: got {got:?}")),
                (Ok(got), true) => Some(format!("{name}: should be refused, gave {got:?}")),
                (Err(e), false) => Some(format!("{name}: {e}")),
                (Err(_), true) => None,
            };
            fault = fault.take().or(wrong);
        };
        if matches!(parser, "utf8" | "both") {
            judge("utf8", parse_utf8(input).map_err(|e| e.message));
        }
        if matches!(parser, "classic" | "both") {
            judge("classic", parse_classic(input).map_err(|e| e.message));
        }
        // The product takes what one of them takes; no case has two results that differ.
        if !refused || parser == "both" {
            judge("product", read(input).map(|r| r.matchers).map_err(|e| e.message));
        }
        tally.case(text(&case, "id"), fault);
    }
}

pub(super) fn intervals(folder: &Path, tally: &mut Tally<'_>) {
    for case in cases(&folder.join("am-timeintervals.json")) {
        let mut problems = Problems::default();
        let name = text(&case, "id");
        let refused = !case["error"].is_null();
        if let Some(yaml_text) = case["time_range_yaml"].as_str() {
            let node = yaml::read(yaml_text).expect("YAML").remove(0);
            let range = MinuteRange::read(&node, "", &mut problems);
            let got = json!(range.map(|r| vec![r.start, r.end]));
            let fault = (got != case["minutes"] || refused != range.is_none()).then(|| format!("got {got}"));
            tally.case(name, fault);
            continue;
        }
        let yaml_text = case["yaml"].as_str().map_or_else(|| case["intervals"].to_string(), str::to_owned);
        let node = yaml::read(&yaml_text).expect("YAML").remove(0);
        let intervals = read_list(&node, "", &mut problems);
        if refused || !problems.is_empty() {
            tally.verdict(name, refused, problems.or(()).map_err(|p| p.to_string()));
            continue;
        }
        let holds = |value: &Value| {
            let time = parse_time("02 Jan 06 15:04 -0700", value.as_str().unwrap_or_default()).expect("a time");
            let at = i64::try_from(time.nanos()).expect("in range");
            intervals.iter().any(|interval| interval.contains(at))
        };
        let wrong = |list: &str, inside: bool| {
            let times = case[list].as_array().into_iter().flatten();
            times.filter(|t| holds(t) != inside).map(|t| format!("{t} should be {list}side")).next()
        };
        tally.case(name, wrong("in", true).or_else(|| wrong("out", false)));
    }
}
