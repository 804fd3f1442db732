//! Responses that lack the content of damaged files (promise D5).
//!
//! An endpoint that builds its query with [`query_context`] can tell its client what is missing: the header
//! `Quiver-Partial` gives the number of files that could not be read, and formats with a place for it name them. Once
//! the head of a response has been sent it is too late for that: a file that fails later ends the stream with an error.
//! Formats that machines process without reading headers (federation, remote read) do not use this and fail as a whole;
//! so does everything with `query.partial_answers = false`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::response::Response;
use http::{HeaderName, HeaderValue};
use quiver_query::{Limits, QueryContext};
use quiver_types::ReadStats;

use crate::state::{AppState, AskedQuery};

/// The number of files that a response lacks.
pub(crate) const PARTIAL: HeaderName = HeaderName::from_static("quiver-partial");

tokio::task_local! {
    /// Counters of the queries of the current request.
    static QUERIES: RefCell<Vec<Arc<ReadStats>>>;
}

/// Makes the context of a query whose response may be partial. Outside of a request it may not.
pub(crate) fn query_context(state: &AppState, asked: AskedQuery, limits: Limits) -> QueryContext {
    let ctx = state.begin(asked, limits);
    let register = |queries: &RefCell<Vec<Arc<ReadStats>>>| queries.borrow_mut().push(Arc::clone(&ctx.stats));
    if state.settings.partial_answers && QUERIES.try_with(register).is_ok() {
        ctx.stats.left_out.allow();
    }
    ctx
}

/// Runs a handler, and adds to the head of its response what it lacks.
pub(crate) async fn tell(answer: impl Future<Output = Response>) -> Response {
    let answered = async {
        let response = answer.await;
        let queries = QUERIES.with(RefCell::take);
        (response, queries)
    };
    let (mut response, queries) = QUERIES.scope(RefCell::default(), answered).await;
    let files: BTreeSet<String> = queries.iter().flat_map(|stats| stats.left_out.close()).collect();
    if !files.is_empty() {
        response.headers_mut().insert(PARTIAL, HeaderValue::from(files.len()));
    }
    response
}
