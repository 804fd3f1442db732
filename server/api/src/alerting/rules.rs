//! Rules and their alerts as Prometheus shows them: `rules` and `alerts` below `/metrics-api/api/v1`.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`rules`, `alerts`). `file` is the file or namespace of a group.

use std::collections::HashSet;
use std::num::IntErrorKind;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use chrono::{DateTime, SecondsFormat};
use quiver_alertd::rules::GroupView;
use quiver_alerting::rules::{ActiveAlert, AlertState, ElementValue, Health, Language, Rule, RuleKind, RuleStatus};
use quiver_promql::{parser, print};
use quiver_types::{Access, Domain, Error, ErrorKind, LabelSet, Matcher, Millis, Result, Rights};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::lists::{ContinueCheck, Text, made};
use crate::encode::prometheus::{Envelope, error_response, success};
use crate::handlers::boxed;
use crate::metrics::phases;
use crate::metrics_api::labels::selectors;
use crate::params::{Params, invalid};
use crate::state::AppState;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/v1/rules", get(boxed(rules))).route("/api/v1/alerts", get(boxed(alerts)))
}

fn answer(data: Result<Vec<u8>>, route: &str) -> Response {
    match data {
        Ok(data) => success(&Envelope::default(), &data),
        Err(e) => error_response(&e, route),
    }
}

/// How an answer that is too large gets smaller.
const FEWER: &str = "leave alerts out by `exclude_alerts=true`, or ask for fewer groups by `group_limit`";
/// Most bytes of alerts that are shown with a single rule: they are made as a tree of values.
const STATE_BYTES_MAX: usize = 16 << 20;

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
    names: HashSet<String>,
    groups: HashSet<String>,
    files: HashSet<String>,
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
        let limit = params.get("group_limit");
        let page = match limit.map(str::parse::<i32>) {
            None if token.is_some() => {
                let text = "group_limit needs to be present in order to paginate over the groups";
                return Err(invalid("group_next_token", text));
            }
            None => None,
            Some(Err(e)) => {
                let reason = match e.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let number = limit.unwrap_or_default();
                let told = format!("strconv.ParseInt: parsing {number:?}: {reason}");
                return Err(invalid("group_limit", &format!("group_limit needs to be a valid number: {told}")));
            }
            Some(Ok(n)) if n <= 0 => return Err(invalid("group_limit", "group_limit needs to be greater than 0")),
            Some(Ok(n)) => Some((n as usize, token.map(str::to_owned))),
        };
        let all = |name: &str| params.all(name).map(str::to_owned).collect();
        let ctx = state.context(phases::Language::Series);
        let (asked, engine, inner) = (params.clone(), Arc::clone(&state.engines.query), ctx.clone());
        let work = async move { selectors(&asked, &engine, &inner) };
        let selectors = state.engines.query.run(&ctx, work).await?;
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
        let listed = |list: &HashSet<String>, text: &str| list.is_empty() || list.contains(text);
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
struct Sight {
    access: Access,
    rights: Arc<Rights>,
    service_labels: Vec<String>,
}

impl Sight {
    /// Takes what the current request may see.
    fn of(state: &AppState) -> Self {
        Self {
            access: state.access(Domain::Alerting),
            rights: Arc::clone(&state.identity().rights),
            service_labels: state.alertd.router.service_labels().to_vec(),
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
        self.access.is_full() || self.access.allows(alert.labels.service(&self.service_labels))
    }

    /// Whether the caller may see a rule: it belongs to the service in its labels.
    fn rule(&self, rule: &Rule) -> bool {
        let pairs = rule.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        self.access.is_full() || self.access.allows(LabelSet::from_pairs(pairs).service(&self.service_labels))
    }
}

fn alert(alert: &ActiveAlert) -> Value {
    let value = match &alert.value {
        ElementValue::Float(value) => exponent(*value),
        // As in Prometheus, whose alerts only have a float value.
        ElementValue::Histogram(..) => exponent(0.0),
    };
    let mut out = json!({
        "labels": labels(&alert.labels), "annotations": *alert.annotations, "state": alert.state.as_str(),
        "activeAt": time(Some(alert.active_at)), "value": value,
    });
    if let Some(since) = alert.keep_firing_since {
        out["keepFiringSince"] = time(Some(since)).into();
    }
    out
}

fn active<'a>(status: &'a RuleStatus, sight: &'a Sight) -> impl Iterator<Item = &'a ActiveAlert> {
    status.alerts().filter(|a| a.state != AlertState::Inactive && sight.alert(a))
}

/// A rule as JSON, without its alerts. `rights` are those that its queries run with.
fn rule(status: &RuleStatus, rights: Option<&Rights>, sight: &Sight) -> Value {
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
    out["alerts"] = Value::Null;
    out
}

/// Writes a rule, with its alerts if they are wanted.
fn write_rule<'a>(
    text: &mut Text,
    mut shown: Value,
    alerts: Option<impl Iterator<Item = &'a ActiveAlert>>,
    go_on: ContinueCheck<'_>,
) -> Result<()> {
    let Some(alerts) = alerts else { return text.item(&shown) };
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("alerts");
    }
    text.item(&shown)?;
    text.open("alerts");
    for one in alerts {
        go_on()?;
        text.item(&alert(one))?;
    }
    text.push("]}");
    Ok(())
}

/// Seconds; an integer if there is no fraction.
fn seconds(ms: Millis) -> Value {
    if ms % 1000 == 0 { (ms / 1000).into() } else { (ms as f64 / 1000.0).into() }
}

/// The token that names a group for the next page.
fn token(view: &GroupView) -> String {
    format!("{:016x}", xxh3_64(format!("{}\u{0}{}", view.file, view.group.model.name).as_bytes()))
}

/// Writes a group, if any rule of it is asked for and may be seen; says whether one is.
fn write_group(
    text: &mut Text,
    view: &GroupView,
    (filter, sight): (&Filter, &Sight),
    go_on: ContinueCheck<'_>,
) -> Result<bool> {
    let all = view.group.rules.iter().enumerate();
    let mut shown = all.filter(|(_, s)| filter.wants(&s.rule) && sight.rule(&s.rule)).peekable();
    if shown.peek().is_none() {
        return Ok(false);
    }
    text.item(&json!({
        "name": view.group.model.name, "file": view.file, "interval": seconds(view.group.interval_ms),
        "limit": view.group.model.limit, "evaluationTime": view.evaluation_time.as_secs_f64(),
        "lastEvaluation": time(view.last_evaluation),
    }))?;
    text.open("rules");
    for (n, status) in shown {
        go_on()?;
        let is_wanted = filter.with_alerts && status.rule.kind == RuleKind::Alert;
        let alerts = is_wanted.then(|| active(status, sight));
        write_rule(text, rule(status, view.rights.get(n), sight), alerts, go_on)?;
    }
    text.push("]}");
    Ok(true)
}

/// Says whether a group has a rule that is asked for and may be seen.
fn is_shown(view: &GroupView, filter: &Filter, sight: &Sight) -> bool {
    view.group.rules.iter().any(|s| filter.wants(&s.rule) && sight.rule(&s.rule))
}

/// Writes the groups that are asked for and may be seen.
fn listed(text: &mut Text, views: &[Arc<GroupView>], by: (&Filter, &Sight), go_on: ContinueCheck<'_>) -> Result<()> {
    let (filter, sight) = by;
    let mut waits_for = filter.page.as_ref().and_then(|(_, token)| token.as_deref());
    let (mut count, mut next) = (0, None);
    text.push("{\"groups\":[");
    for view in views {
        go_on()?;
        if let Some(wanted) = waits_for {
            if token(view) != wanted {
                continue;
            }
            waits_for = None;
        }
        if !filter.wants_group(view) {
            continue;
        }
        if filter.page.as_ref().is_some_and(|(limit, _)| count == *limit) {
            if is_shown(view, filter, sight) {
                next = Some(token(view));
                break;
            }
        } else if write_group(text, view, by, go_on)? {
            count += 1;
        }
    }
    if let Some(wanted) = waits_for {
        let text = format!("invalid group_next_token '{wanted}'. were rule groups changed?");
        return Err(invalid("group_next_token", &text));
    }
    text.push("]");
    if let Some(token) = next {
        text.push(&format!(",\"groupNextToken\":\"{token}\""));
    }
    text.push("}");
    Ok(())
}

async fn rules(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let listed = async {
        let params = Params::of(&state, request).await?;
        let filter = Filter::read(&state, &params).await?;
        let sight = Sight::of(&state);
        made(&state, move |state, go_on| {
            let mut text = Text::new("", state.settings.answer_bytes_max, FEWER);
            listed(&mut text, &state.alertd.rules.views(), (&filter, &sight), go_on)?;
            Ok(text.into_bytes())
        })
        .await
    };
    answer(listed.await, "/api/v1/rules")
}

/// The state of the n-th rule of a group, with those alerts that the caller may see. `None` if it is not running yet.
///
/// # Errors
/// LimitExceeded: there are too many alerts to show.
pub(crate) fn state_of(app: &AppState, namespace: &str, group: &str, n: usize) -> Result<Option<Value>> {
    let sight = Sight::of(app);
    let Some(view) = app.alertd.rules.view(namespace, group) else { return Ok(None) };
    let Some(status) = view.group.rules.get(n) else { return Ok(None) };
    let rights = view.rights.get(n);
    let mut shown = rule(status, rights, &sight);
    if status.rule.kind == RuleKind::Alert {
        let (mut alerts, mut bytes) = (Vec::new(), 0);
        for one in active(status, &sight) {
            bytes += one.bytes();
            if bytes > STATE_BYTES_MAX {
                return Err(Error::new(ErrorKind::LimitExceeded, "the rule has more alerts than can be shown"));
            }
            alerts.push(alert(one));
        }
        shown["alerts"] = alerts.into();
    }
    shown["samples"] = json!(sight.shows_what_reads(&status.rule, rights).then_some(status.samples));
    let keys = ["health", "state", "lastError", "lastEvaluation", "evaluationTime", "samples", "alerts"];
    let picked = keys.into_iter().map(|key| (key.to_owned(), shown.get(key).cloned().unwrap_or(Value::Null)));
    Ok(Some(Value::Object(picked.collect())))
}

/// When a group was last evaluated, how long that took, and how many evaluations were missed; nulls while it is not
/// running.
pub(crate) fn group_times(app: &AppState, namespace: &str, group: &str) -> Map<String, Value> {
    let view = app.alertd.rules.view(namespace, group);
    let view = view.as_deref();
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
    let listed = made(&state, move |state, go_on| {
        let mut text = Text::new("{\"alerts\":[", state.settings.answer_bytes_max, "ask for the rules of some groups");
        for view in state.alertd.rules.views() {
            for status in &view.group.rules {
                for one in active(status, &sight) {
                    go_on()?;
                    text.item(&alert(one))?;
                }
            }
        }
        text.push("]}");
        Ok(text.into_bytes())
    });
    answer(listed.await, "/api/v1/alerts")
}

#[cfg(test)]
mod tests;
