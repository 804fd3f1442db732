//! `/rulesapi/settings` (`config-api` 2.3): whether changes of rules and of the policy take effect at once or wait
//! for a deploy.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use http::Method;
use quiver_config::families::{ALERTING_SETTINGS, SETTINGS_ID};
use quiver_config::{Entity, Op, Problem, Result, System};
use serde_json::{Value, json};

use super::operation::special_of;
use super::request::Ask;
use super::response::Answer;
use crate::state::AppState;

/// Largest body, in bytes.
const BODY_MAX: usize = 4096;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let methods = MethodFilter::GET.or(MethodFilter::PUT);
    Router::new().route(ALERTING_SETTINGS.path, special_of(&ALERTING_SETTINGS, methods, BODY_MAX, settings))
}

fn shown(entity: &Entity) -> Answer {
    let auto = entity.body.get("autoDeploy").cloned().unwrap_or(Value::Null);
    Answer { etag: Some(entity.etag()), ..Answer::ok(json!({"autoDeploy": auto})) }
}

fn settings<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        if matches!(ask.method, Method::GET | Method::HEAD) {
            let entity = ask.config.get(&ask.place, SETTINGS_ID, &ask.caller).await?;
            if ask.knows(&entity.etag()) {
                return Ok(Answer { status: 304, etag: Some(entity.etag()), ..Answer::ok(Value::Null) });
            }
            return Ok(shown(&entity));
        }
        let op = Op::Replace { id: SETTINGS_ID.to_owned(), body: ask.object()?, condition: ask.condition() };
        let done = ask.change(op, System::default()).await?;
        done.after.as_ref().map(shown).ok_or_else(|| Problem::internal("the settings are gone"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_with_their_tag() {
        let shown = |body: Value| {
            let answer = shown(&Entity::for_tests(SETTINGS_ID, body));
            (answer.status, answer.etag, answer.body)
        };
        let tag = || Some("\"1\"".to_owned());
        assert_eq!(shown(json!({"autoDeploy": true, "other": 1})), (200, tag(), json!({"autoDeploy": true})));
        assert_eq!(shown(json!({"autoDeploy": false})), (200, tag(), json!({"autoDeploy": false})));
        assert_eq!(shown(json!({})), (200, tag(), json!({"autoDeploy": null})));
    }
}
