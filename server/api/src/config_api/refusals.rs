//! Runs requests to their response, and audits refused writes: a write that fails before its change begins (invalid body,
//! unknown parameter) leaves a row in the audit log, like one that fails within the change (`config-api` 1.4).

use axum::extract::Request;
use futures::future::BoxFuture;
use http::{HeaderMap, Method};
use quiver_config::{Caller, ChangeMode, Config, Family, IdempotentRequest, Problem, ReplayStatus, Result};
use tracing::Instrument;

use super::family_operation::OperationKind;
use super::request::Ask;
use super::response::Answer;
use crate::identity::{RequestOrigin, caller};
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// The header with a request's idempotency key.
const NAME: &str = "idempotency-key";
/// The audit log's name for the action of a deployment.
const DEPLOY: &str = "DEPLOY";

/// A write, as far as it is known before its body is read.
pub(super) struct Write {
    family: &'static Family,
    caller: Caller,
    action: &'static str,
    id: Option<String>,
}

impl Write {
    /// The write that a request would be; `None` for a read or a dry run.
    pub(super) fn of(
        state: &AppState,
        family: &'static Family,
        action: &'static str,
        id: &str,
        request: &Request,
    ) -> Option<Self> {
        let query = request.uri().query().unwrap_or_default();
        let mut parameters = url::form_urlencoded::parse(query.as_bytes());
        // Deployments have an `action` parameter; some of its values change nothing.
        let only_looks = |key: &str, value: &str| match key {
            "dryRun" => value == "true",
            "action" => action == DEPLOY && matches!(value, "validate" | "diff" | "export"),
            _ => false,
        };
        if request.method().is_safe() || parameters.any(|(key, value)| only_looks(&key, &value)) {
            return None;
        }
        let id = Some(id.to_owned()).filter(|id| !id.is_empty());
        Some(Self { family, caller: caller(&state.identity(), RequestOrigin::current()), action, id })
    }
}

/// The audit log's name for the action.
pub(super) fn action(what: OperationKind, method: &Method) -> &'static str {
    match (what, method) {
        (OperationKind::Restore, _) => "RESTORE",
        (OperationKind::BulkDelete, _) | (_, &Method::DELETE) => "DELETE",
        (OperationKind::Collection, &Method::POST) => "CREATE",
        _ => "UPDATE",
    }
}

/// The same for a special operation, by the end of its path. `None` if it only reads although it is a POST, or
/// changes no entity (jobs, test messages).
pub(super) fn special(family: &Family, method: &Method, path: &str) -> Option<&'static str> {
    match *method {
        Method::DELETE => return Some("DELETE"),
        Method::PUT | Method::PATCH => return Some("UPDATE"),
        Method::POST => {}
        _ => return None,
    }
    if path == family.path {
        return Some("CREATE");
    }
    match path.rsplit('/').next().unwrap_or_default() {
        "test" | "test-pattern" | "preview" | "dependency-graph" | "apply-to-all" => None,
        "clone" | "from-candidates" => Some("CREATE"),
        "bulk-delete" | "expire" => Some("DELETE"),
        "restore" => Some("RESTORE"),
        "deploy" => Some(DEPLOY),
        "rollback" => Some("ROLLBACK"),
        _ => Some("UPDATE"),
    }
}

/// Makes the response to a refused request; a write is noted in the audit log, unless it was noted already.
pub(super) async fn refused(config: &Config, write: Option<&Write>, mut problem: Problem) -> Answer {
    if let Some(write) = write.filter(|_| !problem.noted) {
        let id = write.id.as_deref();
        config.refused_outside(write.family, &write.caller, write.action, id, &mut problem).await;
    }
    Answer::of_problem(&problem)
}

/// Runs a request. If it has an idempotency key (`named`) it runs in a task of its own: a client that disconnects
/// will ask again for the response, so there must be one.
pub(super) async fn to_its_end(named: bool, work: BoxFuture<'static, Answer>) -> Answer {
    if !named {
        return work.await;
    }
    let running = tokio::spawn(RequestInfo::carry(work).in_current_span());
    running.await.expect("a fault of ours ends its request")
}

fn takes_name(method: &Method, headers: &HeaderMap, mode: ChangeMode) -> bool {
    *method == Method::POST && !mode.is_dry_run() && headers.contains_key(NAME)
}

impl Ask {
    /// Whether the request takes an idempotency key: writes do, and requests that start a job, send a message or only
    /// compute.
    pub(super) fn is_named(&self) -> bool {
        takes_name(&self.method, &self.headers, self.mode)
    }

    /// Runs a request; a POST with an idempotency key runs only once.
    pub(super) async fn answered(&self, write: Option<&Write>, run: BoxFuture<'_, Result<Answer>>) -> Answer {
        let mut names = self.headers.get_all(NAME).iter();
        let Some(name) = names.next().filter(|_| self.method == Method::POST) else {
            return self.done(write, run).await;
        };
        let config = self.config.clone();
        if names.next().is_some() {
            let twice = Problem::parameter("`Idempotency-Key` is given more than once");
            return refused(&config, write, twice).await;
        }
        // What a token was answered, a key of the same account may not see: it may hold less, and the answer a secret.
        let identity = self.state.identity();
        let path = identity.key().map_or_else(|| self.path.clone(), |key| format!("{} by {key}", self.path));
        let named = match IdempotentRequest::new(&self.caller.subject, &path, name.as_bytes(), &self.body) {
            Ok(named) => named,
            Err(problem) => return refused(&config, write, problem).await,
        };
        if self.mode.is_dry_run() {
            return self.done(write, run).await;
        }
        match config.begin_named(&named).await {
            Ok(ReplayStatus::Fresh) => {}
            Ok(ReplayStatus::Answered(bytes)) => return Answer::replayed(&bytes),
            Err(problem) => return refused(&config, write, problem).await,
        }
        let answer = self.done(write, run).await;
        let kept = (answer.status < 500).then(|| answer.to_bytes());
        let ended = match config.end_named(&named, kept.as_deref()).await {
            Ok(false) => config.end_named(&named, Some(&answer.shortened().to_bytes())).await,
            ended => ended,
        };
        if let Err(problem) = ended {
            tracing::error!(cause = problem.cause, "the answer to a named request cannot be kept");
        }
        answer
    }

    async fn done(&self, write: Option<&Write>, run: BoxFuture<'_, Result<Answer>>) -> Answer {
        match run.await {
            Ok(answer) => answer,
            Err(problem) => refused(&self.config, write, problem).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use quiver_config::families::{RESOURCES, RULES, SILENCES};

    use super::*;

    #[tokio::test]
    async fn what_is_named_goes_on_without_its_client() {
        for named in [true, false] {
            let (go, wait) = tokio::sync::oneshot::channel::<()>();
            let (done, ended) = tokio::sync::oneshot::channel::<()>();
            let work = async move {
                let _ = wait.await;
                let _ = done.send(());
                Answer::nothing()
            };
            let mut answer = Box::pin(to_its_end(named, Box::pin(work)));
            assert!(futures::poll!(&mut answer).is_pending());
            drop(answer);
            let _ = go.send(());
            assert_eq!(ended.await.is_ok(), named);
        }
    }

    /// A key that was taken must get a response, so such requests go on without their client.
    #[test]
    fn what_takes_a_name() {
        let named: HeaderMap = [(HeaderName::from_static(NAME), HeaderValue::from_static("x"))].into_iter().collect();
        for (method, headers, mode, expected) in [
            (Method::POST, &named, ChangeMode::Apply, true),
            (Method::POST, &named, ChangeMode::DryRun, false),
            (Method::POST, &HeaderMap::new(), ChangeMode::Apply, false),
            (Method::PUT, &named, ChangeMode::Apply, false),
        ] {
            assert_eq!(takes_name(&method, headers, mode), expected, "{method} {headers:?} {mode:?}");
        }
    }

    #[test]
    fn what_the_audit_log_calls_a_write() {
        assert_eq!(action(OperationKind::Collection, &Method::POST), "CREATE");
        assert_eq!(action(OperationKind::Collection, &Method::DELETE), "DELETE");
        assert_eq!(action(OperationKind::BulkDelete, &Method::POST), "DELETE");
        assert_eq!(action(OperationKind::Restore, &Method::POST), "RESTORE");
        assert_eq!(action(OperationKind::Entity, &Method::PATCH), "UPDATE");
        assert_eq!(action(OperationKind::Import, &Method::POST), "UPDATE");
    }

    #[test]
    fn what_the_audit_log_calls_a_special_operation() {
        let check = |family: &Family, method: Method, path: &str, expected: Option<&str>| {
            assert_eq!(special(family, &method, path), expected, "{method} {path}");
        };
        check(&SILENCES, Method::POST, SILENCES.path, Some("CREATE"));
        check(&SILENCES, Method::POST, "/rulesapi/silences/1/expire", Some("DELETE"));
        check(&SILENCES, Method::PUT, "/rulesapi/silences/1", Some("UPDATE"));
        check(&SILENCES, Method::POST, "/rulesapi/silences/preview", None);
        check(&RESOURCES, Method::POST, "/platform-api/resources/1/merge", Some("UPDATE"));
        check(&RESOURCES, Method::POST, "/platform-api/resources/dependency-graph", None);
        check(&RULES, Method::POST, "/rulesapi/deploy", Some("DEPLOY"));
        check(&RULES, Method::POST, "/rulesapi/rules/1/clone", Some("CREATE"));
        check(&RULES, Method::GET, "/rulesapi/deploy", None);
    }
}
