//! `/rulesapi/silences`: silences as a family of the configuration's API (`config-api` 2.8): the same silences that
//! Alertmanager's API has, with the rights of their service.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use quiver_alertd::router::{Asked, Shown, SilenceError};
use quiver_alerting::matchers::Matchers;
use quiver_alerting::silences::{Silence, SilenceState};
use quiver_config::{Problem, ProblemKind};
use quiver_types::{Access, Domain, Right};
use serde_json::{Map, Value, json};

use crate::alerts_api::silences::{is_within, read_matcher, shown};
use crate::alerts_api::{alert_rows, allows, read_matchers};
use crate::config_api::Answer;
use crate::params::Params;
use crate::policy_api::{object_of, time_of};
use crate::state::AppState;

/// Most silences of a page.
const LIMIT_MAX: usize = 1000;
const LIMIT_DEFAULT: usize = 100;
/// Longest name or comment.
const TEXT_MAX: usize = 4000;
/// Most matchers of a silence.
const MATCHERS_MAX: usize = 100;

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/rulesapi/silences", get(list).post(create))
        .route("/rulesapi/silences/preview", post(preview))
        .route("/rulesapi/silences/{id}", get(one).put(change).patch(change).delete(end))
        .route("/rulesapi/silences/{id}/expire", post(end))
}

fn answer(state: &AppState, outcome: Result<Answer, Problem>) -> Response {
    outcome.unwrap_or_else(|problem| Answer::of_problem(&problem)).into_response(Some(state.config.revision()))
}

/// A silence as a family shows it.
fn entity(silence: &Silence, now: i64) -> Value {
    let mut out = shown(silence, now);
    if let Some(map) = out.as_object_mut() {
        let state = map.remove("status").and_then(|status| status.get("state").cloned()).unwrap_or_default();
        map.insert("state".to_owned(), state);
    }
    out
}

fn find(state: &AppState, access: &Access, id: &str) -> Result<Silence, Problem> {
    let found = state.alertd.router.silence(id).filter(|s| is_within(state, access, s));
    found.ok_or_else(|| Problem::not_found(id))
}

fn operate(state: &AppState) -> Access {
    state.identity().rights.access(Right::Operate, Domain::Alerts)
}

async fn list(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let params = Params::read(request.method(), request.headers(), request.uri().query(), &[]);
    let outcome = params.map_err(|e| Problem::parameter(e.message)).and_then(|params| listed(&state, &params));
    answer(&state, outcome)
}

fn listed(state: &AppState, params: &Params) -> Result<Answer, Problem> {
    const KNOWN: [&str; 6] = ["limit", "cursor", "state", "filter", "q", "count"];
    if let Some(unknown) = params.pairs().map(|(name, _)| name).find(|name| !KNOWN.contains(name)) {
        return Err(Problem::parameter(format!("unknown parameter `{unknown}`")));
    }
    let limit = match params.get("limit").map(str::parse::<usize>) {
        None => LIMIT_DEFAULT,
        Some(Ok(n)) if (1..=LIMIT_MAX).contains(&n) => n,
        Some(_) => return Err(Problem::parameter(format!("`limit` must be a number from 1 to {LIMIT_MAX}"))),
    };
    let words = [SilenceState::Active, SilenceState::Pending, SilenceState::Expired];
    let states = params.all("state").map(|word| {
        let known = words.into_iter().find(|state| state.as_str() == word);
        known.ok_or_else(|| Problem::parameter("`state` must be active, pending or expired"))
    });
    let states = states.collect::<Result<Vec<_>, _>>()?;
    let filter = read_matchers(params.all("filter")).map_err(|e| Problem::parameter(e.message))?;
    let q = params.get("q").unwrap_or_default().to_lowercase();
    let (access, now) = (state.access(Domain::Alerts), state.alertd.router.now());
    let fits = |s: &Silence| {
        is_within(state, &access, s)
            && (states.is_empty() || states.contains(&s.state(now)))
            && crate::alerts_api::silences::matches_filter(s, &filter)
            && (q.is_empty() || s.comment.to_lowercase().contains(&q) || s.created_by.to_lowercase().contains(&q))
    };
    let mut all = state.alertd.router.silences();
    all.retain(fits);
    // By id, which grows with time: no page repeats or loses one while others are set.
    all.sort_by(|a, b| b.id.cmp(&a.id));
    let total = all.len();
    if let Some(cursor) = params.get("cursor") {
        all.retain(|s| s.id.as_str() < cursor);
    }
    let next = (all.len() > limit).then(|| all[limit - 1].id.clone());
    let items: Vec<Value> = all.iter().take(limit).map(|s| entity(s, now)).collect();
    let mut out = json!({"items": items, "nextCursor": next});
    if params.get("count") == Some("true") {
        out["total"] = json!(total);
    }
    Ok(Answer::ok(out))
}

async fn one(State(state): State<Arc<AppState>>, Path(id): Path<String>) -> Response {
    let now = state.alertd.router.now();
    let found = find(&state, &state.access(Domain::Alerts), &id);
    answer(&state, found.map(|s| Answer::ok(entity(&s, now))))
}

fn matchers_of(body: &Map<String, Value>) -> Result<Matchers, Problem> {
    let list = body.get("matchers").and_then(Value::as_array);
    let list = list.ok_or_else(|| Problem::field("/matchers", "REQUIRED", "a list of matchers is wanted"))?;
    if list.len() > MATCHERS_MAX {
        return Err(Problem::field("/matchers", "LIMIT_EXCEEDED", format!("at most {MATCHERS_MAX} matchers")));
    }
    let mut all = Vec::new();
    for (n, item) in list.iter().enumerate() {
        let bad = |text: String| Problem::field(format!("/matchers/{n}"), "INVALID_MATCHER", text);
        match item {
            Value::String(text) => {
                let read = read_matchers([text.as_str()].into_iter()).map_err(|e| bad(e.message))?;
                all.extend(read.iter().cloned());
            }
            item => {
                let mut item = item.clone();
                // As matchers of routes have it.
                if let Some(map) = item.as_object_mut() {
                    map.entry("isRegex").or_insert(Value::Bool(false));
                }
                all.push(read_matcher(&item).map_err(|e| bad(e.message))?);
            }
        }
    }
    Ok(Matchers::new(all))
}

fn text_of(body: &Map<String, Value>, field: &str, default: &str) -> Result<String, Problem> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(default.to_owned()),
        Some(Value::String(text)) if text.len() <= TEXT_MAX => Ok(text.clone()),
        Some(Value::String(_)) => Err(Problem::field(format!("/{field}"), "TOO_LONG", "the text is too long")),
        Some(_) => Err(Problem::field(format!("/{field}"), "INVALID_TYPE", "must be a text")),
    }
}

/// Fields that may be sent.
const FIELDS: [&str; 9] =
    ["id", "matchers", "startsAt", "endsAt", "createdBy", "comment", "state", "updatedAt", "status"];

/// Makes a silence of a body; what it lacks is that of `base`.
fn silence_of(state: &AppState, body: &Map<String, Value>, base: Option<&Silence>) -> Result<Silence, Problem> {
    let now = state.alertd.router.now();
    let matchers = match (body.contains_key("matchers"), base) {
        (false, Some(base)) => base.matchers.clone(),
        _ => matchers_of(body)?,
    };
    let ends = match (body.get("endsAt"), base) {
        (None | Some(Value::Null), None) => return Err(Problem::field("/endsAt", "REQUIRED", "an end is wanted")),
        (value, base) => time_of(value, "/endsAt", base.map_or(now, |b| b.ends_at))?,
    };
    let who = state.identity().name.clone();
    Ok(Silence {
        id: base.map(|b| b.id.clone()).unwrap_or_default(),
        matchers,
        starts_at: time_of(body.get("startsAt"), "/startsAt", base.map_or(now, |b| b.starts_at))?,
        ends_at: ends,
        updated_at: 0,
        created_by: text_of(body, "createdBy", base.map_or(who.as_str(), |b| &b.created_by))?,
        comment: text_of(body, "comment", base.map_or("", |b| &b.comment))?,
    })
}

async fn set(state: &AppState, silence: Silence, status: u16) -> Result<Answer, Problem> {
    if !is_within(state, &operate(state), &silence) {
        return Err(Problem::forbidden("{operate, alerts, *}"));
    }
    let router = &state.alertd.router;
    let id = router.set_silence(silence).await.map_err(told)?;
    let made = router.silence(&id).ok_or_else(|| Problem::not_found(&id))?;
    let location = (status == 201).then(|| format!("/rulesapi/silences/{id}"));
    Ok(Answer { status, location, ..Answer::ok(entity(&made, router.now())) })
}

fn told(error: SilenceError) -> Problem {
    match error {
        SilenceError::NotFound => Problem::not_found("silence"),
        SilenceError::Invalid(text) => Problem::new(ProblemKind::Invalid, "VALIDATION_FAILED", text),
        SilenceError::Failed(e) => Problem::internal(e),
    }
}

async fn create(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = async {
        let body = object_of(&state, request, &FIELDS).await?;
        if body.get("id").is_some_and(|id| !id.is_null() && id != "") {
            return Err(Problem::field("/id", "READ_ONLY_FIELD", "the service sets it; PUT changes a silence"));
        }
        set(&state, silence_of(&state, &body, None)?, 201).await
    };
    answer(&state, outcome.await)
}

/// Changes a silence; where that cannot be in place the old one ends and another begins, which has a new id.
async fn change(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let is_patch = request.method() == Method::PATCH;
    let outcome = async {
        let present = find(&state, &operate(&state), &id)?;
        let body = object_of(&state, request, &FIELDS).await?;
        let silence = match is_patch {
            true => silence_of(&state, &body, Some(&present))?,
            false => Silence { id: id.clone(), ..silence_of(&state, &body, None)? },
        };
        set(&state, silence, 200).await
    };
    answer(&state, outcome.await)
}

async fn end(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let is_delete = request.method() == Method::DELETE;
    let outcome = async {
        find(&state, &operate(&state), &id)?;
        let router = &state.alertd.router;
        router.expire_silence(&id, &state.identity().name).await.map_err(told)?;
        if is_delete {
            return Ok(Answer { status: 204, ..Answer::ok(Value::Null) });
        }
        let ended = router.silence(&id).ok_or_else(|| Problem::not_found(&id))?;
        Ok(Answer::ok(entity(&ended, router.now())))
    };
    answer(&state, outcome.await)
}

/// Lists the alerts that a silence with some matchers would keep quiet.
async fn preview(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = async {
        let body = object_of(&state, request, &FIELDS).await?;
        let matchers = matchers_of(&body)?;
        let access = state.access(Domain::Alerts);
        let fits = |labels: &quiver_types::LabelSet| matchers.matches(labels) && allows(&state, &access, labels);
        let everything = Shown { active: true, silenced: true, inhibited: true, muted: true };
        let asked = Asked { shown: everything, labels: &fits, receiver: &|_| true };
        let alerts = alert_rows(&state, &access, &asked);
        Ok(Answer::ok(json!({"alerts": alerts, "total": alerts.len()})))
    };
    answer(&state, outcome.await)
}
