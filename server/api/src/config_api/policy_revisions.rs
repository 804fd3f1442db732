//! Revisions of the stored policy (`config-api` 2.6): every policy that was accepted, and the rollback to one of
//! them.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use chrono::{DateTime, SecondsFormat};
use futures::future::BoxFuture;
use quiver_alertd::revisions::Revision;
use quiver_alerting::config::{Config as Read, config_json};
use quiver_config::families::{ROUTES, TEMPLATES};
use quiver_config::json::text;
use quiver_config::{Area, Caller, Problem, Release, Result};
use serde_json::{Map, Value, json};

use super::deploy::outcome;
use super::operation::special_of;
use super::policy::{Row, live, plan, shown_change};
use super::request::Ask;
use super::response::Answer;
use crate::alerting::stored_policy::{PolicyVersion, REVISION_SEAL, parts};
use crate::state::AppState;

/// Largest body of a rollback request, which should be empty.
const BODY_MAX: usize = 4096;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let own = |path: &str| format!("/rulesapi/rulepolicy/revisions{path}");
    Router::new()
        .route(&own(""), special_of(&ROUTES, MethodFilter::GET, BODY_MAX, list))
        .route(&own("/{n}"), special_of(&ROUTES, MethodFilter::GET, BODY_MAX, one))
        .route(&own("/{n}/rollback"), special_of(&ROUTES, MethodFilter::POST, BODY_MAX, rollback))
}

fn shown(revision: &Revision, live: u64) -> Value {
    let at = DateTime::from_timestamp_millis(revision.at).unwrap_or_default();
    let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    json!({"revision": revision.number, "at": at, "live": revision.number == live})
}

fn list<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let all = ask.state.alertd.revisions.all();
        let live = live(ask);
        Ok(Answer::ok(json!({"items": all.iter().map(|r| shown(r, live)).collect::<Vec<_>>()})))
    })
}

fn find(ask: &Ask, number: &str) -> Result<Arc<Revision>> {
    let found = number.parse().ok().and_then(|n| ask.state.alertd.revisions.get(n));
    found.ok_or_else(|| Problem::not_found(number))
}

fn one<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let found = find(ask, &ids[0])?;
        let mut out = shown(&found, live(ask));
        out["config"] = json!(found.shown);
        Ok(Answer::ok(out))
    })
}

/// Restores a former policy: configuration and templates, including secrets.
fn rollback<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let found = find(ask, &ids[0])?;
        let opened = ask.config.open_text(REVISION_SEAL, &found.sealed);
        let whole: Value = opened
            .and_then(|whole| serde_json::from_str(&whole).ok())
            .ok_or_else(|| Problem::internal(format!("revision {} cannot be opened", found.number)))?;
        let given = whole["config"].as_str().unwrap_or_default();
        let read = Read::load(given)
            .map_err(|p| Problem::internal(p.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
        let present = parts(&ask.config, PolicyVersion::Saved).await?;
        let mut ops = plan(&read, &config_json(given).unwrap_or_default(), &present, &|| ask.config.new_id())?;
        let mut templates = Row::new(&TEMPLATES, &present);
        for (name, content) in whole["templates"].as_object().unwrap_or(&Map::new()) {
            let body = Map::from_iter([("name".to_owned(), json!(name)), ("content".to_owned(), content.clone())]);
            templates.put(body, |part| text(&part.body, "name") == name);
        }
        let (put, gone) = templates.gone();
        ops.extend(put);
        ops.extend(gone);
        let caller = Caller { override_managed: true, ..ask.caller.clone() };
        let release = Release { area: Area::Policy, action: "ROLLBACK", covers: &|_, _| true };
        let done = ask.config.deploy(&caller, ops, &release, ask.mode).await?;
        if !ask.mode.is_dry_run() {
            ask.acts().await;
        }
        Ok(Answer::ok(outcome(Some(live(ask)), ask.mode, &done, &[], (|_| true, shown_change))))
    })
}
