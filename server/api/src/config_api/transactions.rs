//! Key transactions beyond the contract (`config-api` 3.2): made from what was detected.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{RUM_TRANSACTIONS, TRANSACTIONS};
use quiver_config::{Problem, Result};
use serde_json::{Map, Value, json};

use super::detection::{list, only_members};
use super::{Answer, Ask, special_at};
use crate::state::AppState;

/// Most transactions that are made at once.
const ITEMS_MAX: usize = 500;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in [&TRANSACTIONS, &RUM_TRANSACTIONS] {
        let at = format!("{}/from-candidates", family.path);
        router = router.route(&at, special_at(family, MethodFilter::POST, from_candidates));
    }
    router
}

/// Makes key transactions, all or none; each is called after its service and its name.
fn from_candidates<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let body = ask.object()?;
        only_members(&body, &["items"])?;
        let owner = if ask.place.family.name == TRANSACTIONS.name { "service" } else { "application" };
        let given = list(&body, "items", ITEMS_MAX)?;
        if given.is_empty() {
            return Err(Problem::field("/items", "REQUIRED", "must hold at least one"));
        }
        let mut items = Vec::with_capacity(given.len());
        for (n, item) in given.iter().enumerate() {
            let place = format!("/items/{n}");
            let Value::Object(item) = item else {
                return Err(Problem::field(place, "INVALID_TYPE", "must be an object"));
            };
            only_members(item, &[owner, "transactionName"]).map_err(|p| p.below(&place))?;
            let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
            let name: String = format!("{}: {}", text(owner), text("transactionName")).chars().take(200).collect();
            let mut made: Map<String, Value> = item.clone();
            made.insert("name".to_owned(), json!(name));
            items.push(Value::Object(made));
        }
        let done = ask.config.put_many(&ask.place, &ask.caller, items, ask.dry_run).await?;
        ask.acts().await;
        let ids: Vec<String> =
            done.items.iter().filter_map(|i| i.get("id").and_then(Value::as_str).map(str::to_owned)).collect();
        let made = ask.config.find_all(ask.place.family, &ids).await?;
        let items: Vec<Value> = match ask.dry_run {
            true => done.items,
            false => made.iter().map(|e| Value::Object(e.shown())).collect(),
        };
        Ok(Answer { status: 201, ..Answer::ok(json!({"items": items})) })
    })
}
