//! Operations of rules beyond the contract (`config-api` 2.1): copies, and the state of a rule.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::RULES;
use quiver_config::json::text;
use quiver_config::{Entity, ListQuery, Op, Problem, Result, System};
use quiver_types::Domain;
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::alerting::history;
use crate::alerting::rules::state_of;
use crate::alerting::stored_rules::by_group;
use crate::query_problem::query_problem;
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/rulesapi/rules/{id}/clone", special_at(&RULES, MethodFilter::POST, clone))
        .route("/rulesapi/rules/{id}/state", special_at(&RULES, MethodFilter::GET, state))
        .route("/rulesapi/rules/{id}/alerts-history", special_at(&RULES, MethodFilter::GET, history))
}

/// The first of `x_copy`, `x_copy2`, … that is not used in the group.
fn free_name(name: &str, taken: &[String]) -> String {
    let mut copies = (1..).map(|n| if n == 1 { format!("{name}_copy") } else { format!("{name}_copy{n}") });
    copies.find(|copy| !taken.contains(copy)).unwrap_or_default()
}

/// Warns if another rule of the group has the same name, expression and labels: it is accepted, as by Prometheus.
pub(super) async fn stands_twice(ask: &Ask, rule: &Map<String, Value>) -> Option<String> {
    let parameter = |name: &str| (name.to_owned(), text(rule, name).to_owned());
    let parameters: Vec<(String, String)> = ["namespace", "group", "name"].map(parameter).into();
    let query = ListQuery::parse(&RULES, &parameters, &[]).ok()?;
    // The change is made already, so a failure to read is ignored.
    let page = ask.config.list(&ask.place, &query, &ask.caller).await.ok()?;
    let same = |other: &Map<String, Value>| {
        other.get("id") != rule.get("id")
            && ["expr", "language", "labels"].iter().all(|field| other.get(*field) == rule.get(*field))
    };
    let told = "another rule of the group has the same name, expression and labels";
    page.items.iter().any(same).then(|| told.to_owned())
}

fn clone<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let asked = if ask.body.is_empty() { Map::new() } else { ask.object()? };
        only_members(&asked, &["name", "namespace", "group", "enabled"])?;
        let from = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let mut body = from.body.clone();
        let own = body.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        body.remove("position");
        for key in ["namespace", "group"] {
            body.extend(asked.get(key).filter(|v| !v.is_null()).map(|v| (key.to_owned(), v.clone())));
        }
        body.insert("enabled".to_owned(), asked.get("enabled").cloned().unwrap_or(json!(false)));
        let name = match asked.get("name") {
            None | Some(Value::Null) => {
                let all = ask.config.all(&RULES).await?;
                let same = |e: &&Entity| ["namespace", "group"].iter().all(|k| text(&e.body, k) == text(&body, k));
                let taken: Vec<String> = all.iter().filter(same).map(|e| text(&e.body, "name").to_owned()).collect();
                json!(free_name(&own, &taken))
            }
            Some(name) => name.clone(),
        };
        let kind = if text(&from.body, "alert").is_empty() { "record" } else { "alert" };
        body.insert(kind.to_owned(), name);
        let done = ask.change(Op::Create { id: None, body }, System::default()).await?;
        let made = done.after.as_ref().ok_or_else(|| Problem::internal("a copy was not made"))?;
        let location = Some(format!("{}/{}", RULES.path, made.id));
        let shown = ask.config.shown(&RULES, made).await?;
        Ok(Answer { status: 201, etag: Some(made.etag()), location, ..Answer::ok(Value::Object(shown)) })
    })
}

fn state<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let rule = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let (namespace, group) = (text(&rule.body, "namespace").to_owned(), text(&rule.body, "group").to_owned());
        // The index among the running rules, which may differ from the saved ones.
        let all = by_group(Vec::new(), ask.config.running(&RULES).await?);
        let rules = all.get(&(namespace.clone(), group.clone())).map(|stored| &stored.rules[..]).unwrap_or_default();
        let n = rules.iter().position(|e| e.id == rule.id);
        let found = n.map_or(Ok(None), |n| state_of(&ask.state, &namespace, &group, n)).map_err(query_problem)?;
        Ok(Answer::ok(found.unwrap_or_else(|| {
            json!({
                "health": "unknown", "state": null, "lastError": null, "lastEvaluation": null, "evaluationTime": null,
                "samples": 0, "alerts": [],
            })
        })))
    })
}

/// Returns the state changes of a rule's alerts that the caller may see.
fn history<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["start", "end", "limit"])?;
        let rule = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        // Alerts are a domain of their own: a caller who may see the rule may lack the right to see them.
        ask.must_see(Domain::Alerts)?;
        let window = ask.window()?;
        let limit = match ask.parameter("limit")?.map(str::parse::<usize>) {
            None => HISTORY_DEFAULT,
            Some(Ok(n)) if (1..=HISTORY_MAX).contains(&n) => n,
            Some(_) => return Err(Problem::parameter(format!("`limit` must be a number from 1 to {HISTORY_MAX}"))),
        };
        let found = history::of_rule(&ask.state, &rule.id, (window.start / MS, window.end / MS), limit).await;
        Ok(Answer::ok(json!({"items": found.map_err(|e| history::problem(&e))?})))
    })
}

const MS: i64 = 1_000_000;
/// Default and maximum number of state changes.
const HISTORY_DEFAULT: usize = 1000;
const HISTORY_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::free_name;

    #[test]
    fn names_of_copies() {
        let taken = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(free_name("A", &taken(&["A"])), "A_copy");
        assert_eq!(free_name("A", &taken(&["A_copy", "A_copy2"])), "A_copy3");
    }

    #[test]
    fn copies_take_the_first_name_that_is_free() {
        let taken = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for (name, others, expected) in [
            ("A", &[][..], "A_copy"),
            ("A", &["A_copy2", "A_copy3"], "A_copy"),
            ("A", &["A_copy", "A_copy3"], "A_copy2"),
            ("A", &["a_copy"], "A_copy"),
            ("A_copy", &["A_copy"], "A_copy_copy"),
            ("A_copy", &["A_copy", "A_copy_copy"], "A_copy_copy2"),
            ("", &["_copy"], "_copy2"),
        ] {
            assert_eq!(free_name(name, &taken(others)), expected, "{name} {others:?}");
        }
    }
}
