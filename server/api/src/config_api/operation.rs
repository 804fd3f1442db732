//! Routes of operations that families have beyond the contract.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use futures::future::BoxFuture;
use quiver_config::{Family, Place, Problem, ProblemKind, Result};

use super::path_ids::Ids;
use super::refusals::{self, Write, refused, to_its_end};
use super::request::Ask;
use super::response::{Answer, with_dry_run};
use crate::handlers::boxed;
use crate::state::AppState;

/// Largest body in bytes, and the larger limit of imports.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;
pub(super) const IMPORT_BYTES_MAX: usize = 16 << 20;

/// An operation beyond the contract. It gets the ids of the path, in order.
pub(crate) type OperationHandler = for<'a> fn(&'a Ask, &'a [String]) -> BoxFuture<'a, Result<Answer>>;

/// The route of a special operation with these methods.
pub(super) fn special_at(family: &'static Family, methods: MethodFilter, run: OperationHandler) -> Routes {
    special_of(family, methods, BODY_BYTES_MAX, run)
}

/// Like [`special_at`], with this limit on the body in bytes.
pub(crate) fn special_of(
    family: &'static Family,
    methods: MethodFilter,
    largest: usize,
    run: OperationHandler,
) -> Routes {
    let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| async move {
        let id = if let [(_, id)] = &ids[..] { id.as_str() } else { "" };
        let write = refusals::special(family, request.method(), request.uri().path())
            .and_then(|action| Write::of(&state, family, action, id, &request));
        let ids: Vec<String> = ids.into_iter().map(|(_, id)| id).collect();
        let call = Call { place: Place::of(family), largest, write, request };
        call.answer(&state, move |ask| Box::pin(async move { run(ask, &ids).await })).await
    };
    on(methods, boxed(handler)).fallback(not_allowed)
}

/// A request to a place, whose body is not read yet.
pub(super) struct Call {
    pub(super) place: Place,
    /// Most bytes of its body.
    pub(super) largest: usize,
    /// What the audit log says if it is refused.
    pub(super) write: Option<Write>,
    pub(super) request: Request,
}

impl Call {
    /// Reads the request, runs it and answers.
    pub(super) async fn answer(
        self,
        state: &Arc<AppState>,
        run: impl for<'a> FnOnce(&'a Ask) -> BoxFuture<'a, Result<Answer>> + Send + 'static,
    ) -> Response {
        let Self { place, largest, write, request } = self;
        let ask = match Ask::read(state, place, request, largest).await {
            Ok(ask) => ask,
            Err(problem) => return refused(&state.config, write.as_ref(), problem).await.into_response(None),
        };
        let mode = ask.mode;
        let named = ask.is_named();
        let answer = Box::pin(async move { ask.answered(write.as_ref(), run(&ask)).await });
        let answer = to_its_end(named, answer).await;
        with_dry_run(answer.into_response(state.shown_revision()), mode)
    }
}

/// The response for a method that a route does not have; the router adds the `Allow` header.
pub(super) async fn not_allowed() -> Response {
    let text = "this method is not used here";
    Answer::of_problem(&Problem::new(ProblemKind::MethodNotAllowed, "METHOD_NOT_ALLOWED", text)).into_response(None)
}

pub(crate) type Routes = MethodRouter<Arc<AppState>>;
