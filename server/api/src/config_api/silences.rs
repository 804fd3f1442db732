//! `/rulesapi/silences`: silences as a family of the configuration (`config-api` 1.1 and 2.8). They are the silences
//! of Alertmanager's API, stored by the alert router, and subject to the rights of their service. If matchers or
//! start of a silence change, it ends and a new one begins, which the response shows.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use http::{Method, header};
use quiver_alertd::router::{SilenceError, SilenceOp};
use quiver_alerting::silences::Silence;
use quiver_config::families::SILENCES;
use quiver_config::{Condition, ListQuery, Problem, ReadOnlyPolicy, Result};
use quiver_types::Right;
use serde_json::{Map, Value, json};

use super::bulk::own_id;
use super::operation::{IMPORT_BYTES_MAX, special_at, special_of};
use super::path_ids::uuid_of;
use super::request::Ask;
use super::response::Answer;
use super::silence_changes::{patched, rows, silence_problem};
use super::silence_entity::entity;
use super::silence_form::silence;
use super::silences_bulk;
use crate::alerting::alerts::list_routes;
use crate::query_problem::query_problem;
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |path: &str| format!("{}{path}", SILENCES.path);
    let (get, post) = (MethodFilter::GET, MethodFilter::POST);
    let one_of = get.or(MethodFilter::PUT).or(MethodFilter::PATCH).or(MethodFilter::DELETE);
    Router::new()
        .route(&at(""), special_at(&SILENCES, one_of.or(post), collection))
        .route(&at("/preview"), special_at(&SILENCES, post, preview))
        .route(&at("/bulk-delete"), special_at(&SILENCES, post, silences_bulk::bulk_delete))
        .route(&at("/bulk-update"), special_at(&SILENCES, post, silences_bulk::bulk_update))
        .route(&at("/export"), special_at(&SILENCES, get, silences_bulk::export))
        .route(&at("/import"), special_of(&SILENCES, post, IMPORT_BYTES_MAX, silences_bulk::import))
        .route(&at("/{id}"), special_at(&SILENCES, one_of, one))
        .route(&at("/{id}/history"), special_at(&SILENCES, get, history))
        .route(&at("/{id}/restore"), special_at(&SILENCES, post, restore))
        .route(&at("/{id}/expire"), special_at(&SILENCES, post, expire))
}

impl Ask {
    /// The versions of which a silence must still have one when it is changed.
    fn expected(&self, present: &Silence) -> Result<Option<Vec<i64>>> {
        Ok(match self.condition() {
            Condition::Versions(versions) => Some(versions),
            Condition::None | Condition::Exists => None,
            others => {
                others.check(&entity(present, self.alerts_now()))?;
                Some(vec![present.version])
            }
        })
    }

    async fn change_silence(&self, op: Result<SilenceOp>, action: &'static str, id: Option<&str>) -> Result<Silence> {
        let made = match op {
            Ok(op) => self.change_silences(vec![op]).await.map_err(|(_, problem)| problem),
            Err(problem) => Err(problem),
        };
        match made {
            Ok(mut all) => {
                all.pop().map(|done| done.after).ok_or_else(|| Problem::internal("a silence was not changed"))
            }
            Err(problem) => Err(self.silence_refused(action, id, problem).await),
        }
    }

    /// The change that makes a silence what a body says; `None` if it is that already.
    fn setting(&self, id: &str, body: Map<String, Value>) -> Result<Option<SilenceOp>> {
        let present = self.silence(id)?;
        self.may_silence(&present)?;
        let expected = self.expected(&present)?;
        if expected.as_ref().is_some_and(|versions| !versions.contains(&present.version)) {
            return Err(silence_problem(SilenceError::Stale(Box::new(present)), self.alerts_now()));
        }
        let wanted = silence(self, Some(&present), body, ReadOnlyPolicy::Strict)?;
        self.may_silence(&wanted)?;
        Ok((wanted != present).then(|| SilenceOp::Set { silence: Box::new(wanted), id: None, expected }))
    }

    async fn set_silence(&self, id: &str, body: Map<String, Value>) -> Result<Answer> {
        let op = match self.setting(id, body) {
            Ok(None) => return Ok(self.shown_silence(&self.silence(id)?, 200)),
            Ok(Some(op)) => Ok(op),
            Err(problem) => Err(problem),
        };
        let made = self.change_silence(op, "UPDATE", Some(id)).await?;
        let mut answer = self.shown_silence(&made, 200);
        // A new silence replaced it.
        answer.location = (made.id != id).then(|| format!("{}/{}", SILENCES.path, made.id));
        Ok(answer)
    }

    async fn new_silence(&self, id: Option<String>, body: Map<String, Value>) -> Result<Answer> {
        let op = silence(self, None, body, ReadOnlyPolicy::Strict).and_then(|wanted| {
            self.may_silence(&wanted)?;
            Ok(SilenceOp::Set { silence: Box::new(wanted), id: id.clone(), expected: None })
        });
        let made = self.change_silence(op, "CREATE", id.as_deref()).await?;
        let mut answer = self.shown_silence(&made, 201);
        answer.location = Some(format!("{}/{}", SILENCES.path, made.id));
        Ok(answer)
    }

    fn expiring(&self, id: &str) -> Result<SilenceOp> {
        let present = self.silence(id)?;
        self.may_silence(&present)?;
        Ok(SilenceOp::Expire { id: id.to_owned(), expected: self.expected(&present)? })
    }

    fn shown_silence(&self, silence: &Silence, status: u16) -> Answer {
        let entity = entity(silence, self.alerts_now());
        Answer { status, etag: Some(entity.etag()), ..Answer::ok(Value::Object(entity.shown())) }
    }
}

fn collection<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        match ask.method.as_str() {
            "GET" | "HEAD" => list(ask),
            "POST" => {
                ask.only_parameters(&[])?;
                ask.new_silence(None, ask.object()?).await
            }
            "DELETE" => silences_bulk::delete_by_ids(ask).await,
            _ => put_collection(ask).await,
        }
    })
}

fn list(ask: &Ask) -> Result<Answer> {
    let query = ListQuery::parse(&SILENCES, &ask.parameters, &[])?;
    let page = query.page(&SILENCES, rows(ask));
    let mut body = json!({"items": page.items, "nextCursor": page.next_cursor});
    if let Some(total) = page.total {
        body["total"] = json!(total);
    }
    Ok(Answer::ok(body))
}

/// PUT and PATCH of the collection: one object with its id, or several.
async fn put_collection(ask: &Ask) -> Result<Answer> {
    ask.only_parameters(&[])?;
    let mut body = ask.object()?;
    if ask.method == Method::PUT && body.contains_key("items") {
        return silences_bulk::put_many(ask, body).await;
    }
    let id = own_id(&mut body)?;
    if ask.method == Method::PUT { ask.set_silence(&id, body).await } else { patch(ask, &id, body).await }
}

async fn patch(ask: &Ask, id: &str, patch: Map<String, Value>) -> Result<Answer> {
    let body = patched(ask, &ask.silence(id)?, patch);
    ask.set_silence(id, body).await
}

fn read(ask: &Ask, id: &str) -> Result<Answer> {
    ask.only_parameters(&["fields"])?;
    let query = ListQuery::parse(&SILENCES, &ask.parameters, &[])?;
    let entity = entity(&ask.silence(id)?, ask.alerts_now());
    let etag = Some(entity.etag());
    if ask.knows(&entity.etag()) {
        return Ok(Answer { status: 304, etag, ..Answer::ok(Value::Null) });
    }
    Ok(Answer { etag, ..Answer::ok(Value::Object(query.cut(entity.shown()))) })
}

fn one<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let id = ids[0].as_str();
        if ask.method.is_safe() {
            return read(ask, id);
        }
        ask.only_parameters(&[])?;
        match ask.method.as_str() {
            "DELETE" => {
                ask.change_silence(ask.expiring(id), "DELETE", Some(id)).await?;
                Ok(Answer::nothing())
            }
            "PATCH" => patch(ask, id, ask.object()?).await,
            _ if ask.headers.get(header::IF_NONE_MATCH).is_some_and(|v| v.as_bytes().trim_ascii() == b"*") => {
                ask.new_silence(Some(uuid_of(id)?), ask.object()?).await
            }
            _ => ask.set_silence(id, ask.object()?).await,
        }
    })
}

fn expire<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let ended = ask.change_silence(ask.expiring(&ids[0]), "DELETE", Some(&ids[0])).await?;
        Ok(ask.shown_silence(&ended, 200))
    })
}

fn history<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        ask.silence(&ids[0])?;
        match ask.config.history(&ask.place, &ids[0], &ask.caller).await {
            // A silence from before its changes were noted.
            Err(problem) if problem.code == "NOT_FOUND" => Ok(Answer::ok(json!({"items": []}))),
            found => found.map(Answer::ok),
        }
    })
}

/// Restores a former version of a silence.
fn restore<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let version = ask.version()?;
        ask.silence(&ids[0])?;
        let mut body = ask.config.version_outside(&SILENCES, &ids[0], version).await?;
        body.remove("state");
        ask.set_silence(&ids[0], body).await
    })
}

/// Lists the alerts that a silence with these matchers would mute.
fn preview<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let matchers = super::silence_form::matchers(&ask.object()?, &mut ask.patterns.lock())?;
        let found = list_routes::preview(&ask.state, ask.alerts_access(Right::View), matchers).await;
        let alerts = found.map_err(query_problem)?;
        Ok(Answer::ok(json!({"alerts": alerts, "total": alerts.len()})))
    })
}
