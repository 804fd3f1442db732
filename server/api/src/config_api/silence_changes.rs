//! Silences that a caller may see, and changes of them: all or none, noted in the history.

use std::sync::Arc;

use quiver_alertd::router::{SilenceDone, SilenceError, SilenceOp};
use quiver_alerting::silences::Silence;
use quiver_config::families::SILENCES;
use quiver_config::json::merge;
use quiver_config::{Problem, ProblemKind, Result};
use quiver_types::{Access, Domain, Right};
use serde_json::{Map, Value, json};

use super::request::Ask;
use super::silence_entity::{entity, note};
use crate::alerting::alerts::silences::is_within;
use crate::query_problem::query_problem;

/// What was changed; or the index of the first silence that could not be changed, and why.
pub(super) type SilenceChangeResult = std::result::Result<Vec<SilenceDone>, (usize, Problem)>;

impl Ask {
    /// The current time of the alert router, in Unix nanoseconds.
    pub(super) fn alerts_now(&self) -> i64 {
        self.state.alertd.router.now()
    }

    /// The services for whose alerts the caller has a right.
    pub(super) fn alerts_access(&self, right: Right) -> Access {
        self.caller.rights.access(right, Domain::Alerts)
    }

    /// Finds a silence that the caller may see.
    pub(super) fn silence(&self, id: &str) -> Result<Silence> {
        let access = self.alerts_access(Right::View);
        let found = self.state.alertd.router.silence(id).filter(|s| is_within(&self.state, &access, s));
        found.ok_or_else(|| Problem::not_found(id))
    }

    /// Silences that the caller sees.
    pub(super) fn silences(&self) -> Vec<Arc<Silence>> {
        let access = self.alerts_access(Right::View);
        let mut all = self.state.alertd.router.silences();
        all.retain(|silence| is_within(&self.state, &access, silence));
        all
    }

    /// Refuses callers who may not set or end a silence.
    pub(super) fn may_silence(&self, silence: &Silence) -> Result<()> {
        let may = is_within(&self.state, &self.alerts_access(Right::Operate), silence);
        if may { Ok(()) } else { Err(Problem::forbidden("{operate, alerts, *}")) }
    }

    /// Makes changes, all or none, and notes them.
    pub(super) async fn change_silences(&self, ops: Vec<SilenceOp>) -> SilenceChangeResult {
        let router = &self.state.alertd.router;
        let made = router.change_silences(ops, &self.caller.name, self.mode).await;
        let made = made.map_err(|(n, error)| (n, silence_problem(error, router.now())))?;
        if !self.mode.is_dry_run() {
            note(&self.state, &self.caller, &made).await;
        }
        Ok(made)
    }

    /// Makes changes, each by itself, and notes those that were made.
    pub(super) async fn change_each_silence(&self, ops: Vec<SilenceOp>) -> Result<Vec<Result<SilenceDone>>> {
        let router = &self.state.alertd.router;
        let made = router.change_each(ops, &self.caller.name, self.mode).await;
        let made = made.map_err(|error| silence_problem(error, router.now()))?;
        if !self.mode.is_dry_run() {
            let done: Vec<SilenceDone> = made.iter().flatten().cloned().collect();
            note(&self.state, &self.caller, &done).await;
        }
        Ok(made.into_iter().map(|one| one.map_err(|error| silence_problem(error, router.now()))).collect())
    }

    /// Notes that a change was refused.
    pub(super) async fn silence_refused(
        &self,
        action: &'static str,
        id: Option<&str>,
        mut problem: Problem,
    ) -> Problem {
        if !self.mode.is_dry_run() {
            self.config.refused_outside(&SILENCES, &self.caller, action, id, &mut problem).await;
        }
        problem
    }
}

/// Converts an error of the router into a problem for the caller.
pub(super) fn silence_problem(error: SilenceError, now: i64) -> Problem {
    match error {
        SilenceError::NotFound => Problem::not_found("silence"),
        SilenceError::Exists => {
            Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", "there is one with this id")
        }
        SilenceError::Stale(present) => {
            let present = entity(&present, now);
            Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", "the silence has changed meanwhile")
                .with("current", Value::Object(present.shown()))
                .with("etag", json!(present.etag()))
        }
        SilenceError::Invalid(text) => Problem::field("", "INVALID_VALUE", text),
        SilenceError::Failed(error) => query_problem(error),
    }
}

/// All silences that the caller may see, as they are shown.
pub(super) fn rows(ask: &Ask) -> Vec<(String, Map<String, Value>)> {
    let now = ask.alerts_now();
    ask.silences().iter().map(|silence| (silence.id.clone(), entity(silence, now).shown())).collect()
}

/// The fields of a silence after a merge patch (RFC 7396).
pub(super) fn patched(ask: &Ask, present: &Silence, patch: Map<String, Value>) -> Map<String, Value> {
    let mut body = entity(present, ask.alerts_now()).shown();
    merge(&mut body, patch);
    body
}

#[cfg(test)]
mod tests {
    use quiver_types::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_stale_change_is_told_what_is_there() {
        let silence = Silence { id: "s1".to_owned(), version: 3, comment: "why".to_owned(), ..Silence::default() };
        let problem = silence_problem(SilenceError::Stale(Box::new(silence)), 0);
        assert_eq!((problem.kind, problem.code), (ProblemKind::Precondition, "VERSION_CONFLICT"));
        assert_eq!(problem.more["etag"], "\"3\"");
        let current = &problem.more["current"];
        assert_eq!((current["id"].as_str(), current["comment"].as_str()), (Some("s1"), Some("why")));
    }

    #[test]
    fn refusals_of_changes() {
        let exists = silence_problem(SilenceError::Exists, 0);
        assert_eq!((exists.kind, exists.code), (ProblemKind::Precondition, "VERSION_CONFLICT"));
        assert!(exists.more.is_empty(), "nothing is told of one that the caller may not see");
        assert_eq!(silence_problem(SilenceError::NotFound, 0).kind, ProblemKind::NotFound);
        let invalid = silence_problem(SilenceError::Invalid("no matchers".to_owned()), 0);
        assert_eq!((invalid.kind, invalid.detail.as_str()), (ProblemKind::Invalid, "no matchers"));
        let busy =
            silence_problem(SilenceError::Failed(Error::new(ErrorKind::Unavailable, "alerts cannot be stored now")), 0);
        assert_eq!((busy.kind, busy.detail.as_str()), (ProblemKind::Busy, "alerts cannot be stored now"));
        assert_eq!(silence_problem(SilenceError::Failed(Error::internal("a cause")), 0).kind, ProblemKind::Internal);
    }
}
