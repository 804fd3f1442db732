//! Data-extraction rules beyond the contract: tests on records and figures of what they do (`config-api` 3.7).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::EXTRACTION_RULES;
use quiver_config::{Problem, Result};
use quiver_types::condition::{FieldName, Fields};
use quiver_types::extraction::{ExtractionRule, Record};
use serde_json::{Map, Value, json};

use super::detection::{invalid, list, only_members};
use super::{Answer, Ask, special_at};
use crate::state::AppState;

/// Most records of a test.
const SAMPLES_MAX: usize = 1000;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |rest: &str| format!("{}{rest}", EXTRACTION_RULES.path);
    Router::new()
        .route(&at("/test"), special_at(&EXTRACTION_RULES, MethodFilter::POST, test))
        .route(&at("/{id}/stats"), special_at(&EXTRACTION_RULES, MethodFilter::GET, stats))
}

/// A record of a test.
struct Sample(Map<String, Value>);

impl Fields for Sample {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let key = name.to_string();
        let bare = match name {
            FieldName::Resource(key) | FieldName::Attribute(key) => Some(key.as_str()),
            _ => None,
        };
        match self.0.get(&key).or_else(|| self.0.get(bare?))? {
            Value::Null => None,
            Value::String(text) => Some(Cow::Borrowed(text)),
            other => Some(Cow::Owned(other.to_string())),
        }
    }
}

impl Record for Sample {
    fn set(&mut self, field: &str, value: &Value) {
        self.0.insert(field.to_owned(), value.clone());
    }
}

fn test<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let body = ask.object()?;
        only_members(&body, &["rule", "ruleId", "samples", "query"])?;
        let tested = ask.tested(&body).await?;
        if body.contains_key("query") {
            return Err(Problem::field(
                "/query",
                "UNSUPPORTED",
                "tests over stored records are not there; send `samples`",
            ));
        }
        let rule = ExtractionRule::of_json("", &tested).map_err(|found| invalid("/rule", found))?;
        let mut results = Vec::new();
        for (n, sample) in list(&body, "samples", SAMPLES_MAX)?.iter().enumerate() {
            let Value::Object(map) = sample else {
                return Err(Problem::field(format!("/samples/{n}"), "INVALID_TYPE", "must be an object"));
            };
            let mut record = Sample(map.clone());
            let service = ["service.name", "service_name", "service"].iter().find_map(|key| map.get(*key));
            let is_for = rule.is_for(service.and_then(Value::as_str).unwrap_or_default());
            let began = Instant::now();
            let applied = if is_for { rule.apply(&mut record) } else { quiver_types::extraction::Applied::default() };
            let elapsed = began.elapsed();
            let fields: Map<String, Value> = applied.fields.into_iter().collect();
            let errors: Vec<Value> =
                applied.errors.into_iter().map(|(field, why)| json!({"field": field, "message": why})).collect();
            results.push(json!({
                "input": sample, "matched": applied.matched, "fields": fields, "errors": errors,
                "elapsedUs": elapsed.as_secs_f64() * 1e6,
            }));
        }
        Ok(Answer::ok(json!({"results": results})))
    })
}

/// What a rule did on this node since the server began, or since the rule changed.
fn stats<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let figures = ask.state.effects.extraction().figures(&entity.id);
        Ok(Answer::ok(json!({
            "seen": figures.seen, "matched": figures.matched, "failed": figures.failed,
            "meanUs": figures.mean_us(), "health": entity.body.get("health"),
        })))
    })
}
