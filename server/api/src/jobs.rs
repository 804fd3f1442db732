//! Long operations, run one after the other (`config-api` 1.7) by the server that was asked for them. One that was
//! interrupted by a stop continues with the next partition after the restart.
//!
//! `apply_detection` applies rules to stored spans.

pub(crate) mod apply_detection;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use futures::future::BoxFuture;
use http::Method;
use quiver_config::{Caller, Job, Problem, ProblemKind, Result};
use quiver_types::{Domain, Right, Triple};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::config_api::path_ids::{Ids, no_parameters};
use crate::config_api::response::Answer;
use crate::handlers::boxed;
use crate::identity::{RequestOrigin, caller};
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// How often the database is asked when nothing told of a job.
const LOOK: Duration = Duration::from_secs(30);
/// How often it is asked whether the job under way was cancelled.
const LOOK_CANCELLED: Duration = Duration::from_millis(500);
/// What cannot be done now is tried again after a while.
const AGAIN: Duration = Duration::from_secs(2);
/// How often that is tried before the job fails.
const TRIES: u32 = 30;
/// How often a server says that it is there, where it shares its database; one that just came back has so long for it.
const HOLD: Duration = Duration::from_mins(1);

/// Where a job is found.
pub(crate) const PATH: &str = "/platform-api/jobs";

pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(&format!("{PATH}/{{id}}"), get(boxed(one)).delete(boxed(one)))
}

/// The answer to a request that began a job.
pub(crate) fn accepted(job: &Job) -> Answer {
    Answer { status: 202, location: Some(format!("{PATH}/{}", job.id)), ..Answer::ok(job.shown()) }
}

/// Whoever made it; others with the right for all services of its domain.
fn may(caller: &Caller, job: &Job, right: Right) -> bool {
    let domain = Domain::ALL.iter().find(|(_, word, ..)| *word == job.domain).map(|(domain, ..)| *domain);
    job.subject == caller.subject || caller.rights.covers(&Triple::everywhere(right, domain.unwrap_or(Domain::System)))
}

async fn one(State(state): State<Arc<AppState>>, method: Method, Ids(ids): Ids, RawQuery(query): RawQuery) -> Response {
    let id = ids.first().map_or("", |(_, id)| id.as_str());
    let answer = async {
        no_parameters(query.as_deref())?;
        answered(&state, &method, id).await
    };
    Answer::respond(answer.await)
}

async fn answered(state: &AppState, method: &Method, id: &str) -> Result<Answer> {
    let info = RequestInfo::current();
    let origin = RequestOrigin { ip: None, request_id: info.map(|i| i.id().to_owned()).unwrap_or_default() };
    let caller = caller(&state.identity(), origin);
    let cancels = *method == Method::DELETE;
    let right = if cancels { Right::Operate } else { Right::View };
    let found = state.config.job(id).await?.filter(|job| may(&caller, job, right));
    let found = found.ok_or_else(|| Problem::new(ProblemKind::NotFound, "NOT_FOUND", "there is no such job"))?;
    if !cancels {
        return Ok(Answer::ok(found.shown()));
    }
    let job = state.config.cancel_job(id).await?;
    Ok(Answer::ok(job.as_ref().unwrap_or(&found).shown()))
}

/// Why a job ends before its end.
#[derive(Debug)]
pub(crate) enum StopReason {
    /// Somebody cancelled it.
    Cancelled,
    /// It cannot be done now; it is tried again from its last partition on.
    Later(String),
    /// It cannot be done.
    Failed(String),
}

impl From<Problem> for StopReason {
    fn from(problem: Problem) -> Self {
        match problem.kind {
            ProblemKind::Busy => Self::Later(problem.detail),
            _ => Self::Failed(problem.detail),
        }
    }
}

/// Carries out jobs until the server stops.
pub fn run(state: Arc<AppState>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let server = state.engines.store.installation().to_string();
        tokio::select! {
            () = stop.cancelled() => {}
            () = carry_on(&state, &server) => {}
            () = hold(&state, &server) => {}
        }
    })
}

async fn carry_on(state: &Arc<AppState>, server: &str) {
    loop {
        match state.config.next_job(server).await {
            Ok(Some(job)) => Box::pin(carry_out(state, job)).await,
            Ok(None) => tokio::select! {
                () = state.config.job_queued() => {}
                () = tokio::time::sleep(LOOK) => {}
            },
            Err(problem) => {
                tracing::warn!(cause = problem.cause, "jobs cannot be read; trying again");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Says now and then that this server is there, and ends the jobs of those that are not; of one alone it does nothing.
async fn hold(state: &AppState, server: &str) {
    if !state.config.is_shared() {
        return std::future::pending().await;
    }
    loop {
        if let Err(problem) = state.config.hold_jobs(server).await {
            tracing::warn!(cause = problem.cause, "it cannot be noted that jobs are held; trying again");
        }
        tokio::time::sleep(HOLD).await;
        match state.config.end_jobs_of_others(server).await {
            Ok(0) => {}
            Ok(jobs) => tracing::warn!(jobs, "jobs failed: their servers have been away for an hour"),
            Err(problem) => tracing::warn!(cause = problem.cause, "jobs of other servers cannot be read; trying again"),
        }
    }
}

async fn carry_out(state: &Arc<AppState>, mut job: Job) {
    tracing::info!(job = job.id, kind = job.kind, "a job begins or goes on");
    let (mut tries, id) = (0, job.id.clone());
    let outcome = loop {
        let done = tokio::select! {
            done = run_job(state, &mut job) => done,
            () = cancelled(state, &id) => Err(StopReason::Cancelled),
        };
        match done {
            Ok(()) => break None,
            Err(StopReason::Cancelled) => {
                tracing::info!(job = job.id, "a job was cancelled");
                return;
            }
            Err(StopReason::Failed(why)) => break Some(why),
            Err(StopReason::Later(why)) if tries == TRIES => break Some(why),
            Err(StopReason::Later(why)) => {
                tracing::warn!(job = job.id, why, "a job cannot go on now; trying again");
                tries += 1;
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    if let Some(why) = &outcome {
        tracing::error!(job = job.id, why, "a job failed");
    }
    while let Err(problem) = state.config.end_job(&job, outcome.as_deref()).await {
        tracing::warn!(cause = problem.cause, "the end of a job cannot be noted; trying again");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Runs a job to its end, by its kind.
async fn run_job(state: &Arc<AppState>, job: &mut Job) -> Result<(), StopReason> {
    match job.kind.as_str() {
        apply_detection::KIND | apply_detection::RUM_KIND => apply_detection::run(state, job).await,
        other => Err(StopReason::Failed(format!("this build knows no jobs of kind `{other}`"))),
    }
}

/// Waits until somebody cancels a job.
async fn cancelled(state: &AppState, id: &str) {
    loop {
        tokio::time::sleep(LOOK_CANCELLED).await;
        if let Ok(found) = state.config.job(id).await
            && found.is_none_or(|job| job.has_ended())
        {
            return;
        }
    }
}

/// Notes how far a job is.
pub(crate) async fn advance(state: &AppState, job: &Job) -> Result<(), StopReason> {
    if state.config.advance_job(job).await? { Ok(()) } else { Err(StopReason::Cancelled) }
}

/// Adds to a counter of a job.
pub(crate) fn count(job: &mut Job, name: &str, more: u64) {
    let known = job.counters.get(name).and_then(Value::as_u64).unwrap_or_default();
    job.counters.insert(name.to_owned(), json!(known + more));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_for_a_busy_store_alone() {
        let busy = Problem::new(ProblemKind::Busy, "STORE_BUSY", "later");
        assert!(matches!(StopReason::from(busy), StopReason::Later(why) if why == "later"));
        for problem in [Problem::not_found("x"), Problem::internal("a disk"), Problem::field("/a", "REQUIRED", "no")] {
            let detail = problem.detail.clone();
            assert!(matches!(StopReason::from(problem), StopReason::Failed(why) if why == detail));
        }
    }
}
