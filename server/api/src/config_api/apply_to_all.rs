//! `apply-to-all` of detection rules (`config-api` 3.1): starts a job that applies them to stored data.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{DETECTION_RULES, RUM_DETECTION_RULES};
use quiver_config::{Entity, NewJob, Problem, Result, must_have};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::body_members::{list, only_members};
use super::detection::owner_of;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::jobs::accepted;
use crate::jobs::apply_detection::{KIND, Params, RUM_KIND};
use crate::state::AppState;

/// Most rules and services in a request.
const NAMED_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in [&DETECTION_RULES, &RUM_DETECTION_RULES] {
        router = router
            .route(&format!("{}/apply-to-all", family.path), special_at(family, MethodFilter::POST, all))
            .route(&format!("{}/{{id}}/apply-to-all", family.path), special_at(family, MethodFilter::POST, one));
    }
    router
}

fn texts(body: &Map<String, Value>, key: &str) -> Result<Option<Vec<String>>> {
    if body.get(key).is_none_or(Value::is_null) {
        return Ok(None);
    }
    let text = |(n, value): (usize, &Value)| {
        let text = value.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        text.ok_or_else(|| Problem::field(format!("/{key}/{n}"), "INVALID_TYPE", "must be a text"))
    };
    list(body, key, NAMED_MAX)?.iter().enumerate().map(text).collect::<Result<Vec<_>>>().map(Some)
}

impl Ask {
    /// The body; an empty one counts as an empty object.
    fn body_or_none(&self) -> Result<Map<String, Value>> {
        if self.body.is_empty() { Ok(Map::new()) } else { self.object() }
    }

    async fn apply(
        &self,
        body: &Map<String, Value>,
        rules: Option<Vec<String>>,
        services: Vec<String>,
    ) -> Result<Answer> {
        for service in &services {
            must_have(&self.caller, Right::Operate, Domain::Transactions, service)?;
        }
        let (start, end) = self.times_of(body)?;
        let range = (start.unwrap_or(i64::MIN), end.unwrap_or_else(|| self.now_ns()));
        if range.0 >= range.1 {
            return Err(Problem::field("/start", "INVALID_VALUE", "must come before `end`"));
        }
        let params = Params { rules, services, range }.to_json();
        let kind = if self.place.family.name == DETECTION_RULES.name { KIND } else { RUM_KIND };
        let server = self.state.engines.store.installation().to_string();
        let job = NewJob { kind, domain: "transactions", server, params };
        Ok(accepted(&self.config.queue_job(job, &self.caller, self.mode).await?))
    }

    /// The member that lists services or, for rules of pages, applications.
    fn named_by(&self, body: &Map<String, Value>) -> &'static str {
        let pages = self.place.family.name == RUM_DETECTION_RULES.name;
        if pages && body.contains_key("applications") { "applications" } else { "services" }
    }

    /// A rule that the caller may see.
    async fn rule(&self, id: &str, at: String) -> Result<Entity> {
        let found = self.config.get(&self.place, id, &self.caller).await;
        found.map_err(|p| match p.code {
            "NOT_FOUND" => Problem::field(at, "UNKNOWN_REFERENCE", format!("there is no rule `{id}`")),
            _ => p,
        })
    }
}

fn all<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.body_or_none()?;
        let services = ask.named_by(&body);
        only_members(&body, &["ruleIds", services, "start", "end"])?;
        let rules = texts(&body, "ruleIds")?;
        for (n, id) in rules.iter().flatten().enumerate() {
            ask.rule(id, format!("/ruleIds/{n}")).await?;
        }
        let services = texts(&body, services)?.unwrap_or_else(|| vec!["*".to_owned()]);
        ask.apply(&body, rules, services).await
    })
}

fn one<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.body_or_none()?;
        let services = ask.named_by(&body);
        only_members(&body, &[services, "start", "end"])?;
        let rule = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let own = rule.body.get(owner_of(ask.place.family)).and_then(Value::as_str).unwrap_or("*").to_owned();
        let services = texts(&body, services)?.unwrap_or_else(|| vec![own]);
        ask.apply(&body, Some(vec![rule.id]), services).await
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_texts_that_say_something() {
        let read = |value: Value| texts(&Map::from_iter([("services".to_owned(), value)]), "services");
        assert_eq!(texts(&Map::new(), "services").unwrap(), None);
        assert_eq!(read(Value::Null).unwrap(), None);
        assert_eq!(read(json!([])).unwrap(), Some(Vec::new()));
        assert_eq!(read(json!(["cart", "*"])).unwrap(), Some(vec!["cart".to_owned(), "*".to_owned()]));
        for (value, place) in [
            (json!("cart"), "/services"),
            (json!(["cart", ""]), "/services/1"),
            (json!([5]), "/services/0"),
            (json!(vec!["a"; NAMED_MAX + 1]), "/services"),
        ] {
            assert_eq!(read(value).unwrap_err().errors[0].field, place);
        }
    }
}
