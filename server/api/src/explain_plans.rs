//! `explain` for all query routes: the request is processed like any other, its plans are recorded on the way
//! (`quiver_query::PlanRecorder`), and replace the response.
//!
//! So the plans shown are those that the route really runs. Without `analyze` the plans give no rows; what the handler
//! makes of that (a 404, an empty list) is discarded.

use std::cell::RefCell;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use quiver_query::{Explain, PlanRecorder, QueryContext};
use quiver_types::Error;
use serde_json::Value;

use crate::encode::json::json_answer;
use crate::encode::prometheus::{Envelope, error_response, success};
use crate::error::plain_error;

tokio::task_local! {
    /// Where the plans of the current request are recorded, if it asked for that.
    static ASKED: RefCell<Option<Arc<PlanRecorder>>>;
}

/// Reads the parameter; `None` where it is absent.
///
/// # Errors
/// It has another value: the text says which ones there are.
pub(crate) fn read(value: Option<&str>) -> Result<Option<Explain>, String> {
    match value {
        None | Some("false" | "0") => Ok(None),
        Some("true" | "1") => Ok(Some(Explain::Plan)),
        Some("analyze") => Ok(Some(Explain::Analyze)),
        Some(other) => Err(format!("`{other}` is not one of true, analyze, false")),
    }
}

/// Has the plans of the current request recorded.
pub(crate) fn ask(explain: Explain) {
    // Outside of a request there is no response to replace.
    let _ = ASKED.try_with(|asked| {
        asked.borrow_mut().get_or_insert_with(|| PlanRecorder::new(explain));
    });
}

/// Has the plans of a query recorded, if its request asked for that.
pub(crate) fn noting(ctx: QueryContext) -> QueryContext {
    let asked = ASKED.try_with(|asked| asked.borrow().clone()).ok().flatten();
    if asked.is_some() { ctx.explaining(asked) } else { ctx }
}

/// How the errors of a family are told.
type Refuse = fn(&Error, &str) -> Response;

/// Without `refuse`, another value is for the handlers to refuse.
async fn shown(request: Request, next: Next, wrap: fn(&Value) -> Response, refuse: Option<Refuse>) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let value = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "explain");
    let explain = match (read(value.as_ref().map(|(_, value)| &**value)), refuse) {
        (Err(why), Some(refuse)) => {
            return refuse(&Error::invalid(format!("invalid parameter \"explain\": {why}")), "explain");
        }
        (explain, _) => explain.ok().flatten(),
    };
    let asked = RefCell::new(explain.map(PlanRecorder::new));
    let (response, asked) = ASKED
        .scope(asked, async move {
            let response = next.run(request).await;
            (response, ASKED.with(RefCell::take))
        })
        .await;
    // If there was an error before any plan was made, the response is the error.
    asked.and_then(|plans| plans.shown()).map_or(response, |plans| wrap(&plans))
}

/// Middleware for `explain`: answers with the plans as JSON.
pub(crate) async fn plain(request: Request, next: Next) -> Response {
    shown(request, next, json_answer, None).await
}

/// Middleware for `explain` of routes that tell errors as text: answers with the plans as JSON.
pub(crate) async fn beside_text(request: Request, next: Next) -> Response {
    shown(request, next, json_answer, Some(plain_error)).await
}

/// Middleware for `explain`: answers with the plans in the envelope of Prometheus.
pub(crate) async fn enveloped(request: Request, next: Next) -> Response {
    let wrap = |plans: &Value| success(&Envelope::default(), plans.to_string().as_bytes());
    shown(request, next, wrap, Some(error_response)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let (plan, analyze) = (Some(Explain::Plan), Some(Explain::Analyze));
        for (value, expected) in [
            (None, None),
            (Some("false"), None),
            (Some("0"), None),
            (Some("true"), plan),
            (Some("1"), plan),
            (Some("analyze"), analyze),
        ] {
            assert_eq!(read(value), Ok(expected), "{value:?}");
        }
        for wrong in ["", "yes", "TRUE", "ANALYZE", "2"] {
            assert_eq!(read(Some(wrong)), Err(format!("`{wrong}` is not one of true, analyze, false")));
        }
    }

    #[tokio::test]
    async fn who_does_not_ask_is_not_shown() {
        let ctx = || QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        ask(Explain::Plan);
        assert!(!noting(ctx()).is_only_planned(), "outside of a request");
        ASKED
            .scope(RefCell::default(), async {
                assert!(!noting(ctx()).is_only_planned());
                ask(Explain::Plan);
                assert!(noting(ctx()).is_only_planned());
                assert!(!noting(ctx()).planning().is_only_planned(), "planning needs rows");
                ask(Explain::Analyze);
                assert!(noting(ctx()).is_only_planned(), "the first one counts");
            })
            .await;
        ASKED
            .scope(RefCell::new(Some(PlanRecorder::new(Explain::Analyze))), async {
                assert!(!noting(ctx()).is_only_planned());
            })
            .await;
    }
}
