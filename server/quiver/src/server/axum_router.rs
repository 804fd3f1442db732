//! A router that answers "starting" until the store is open.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use quiver_api::AppState;
use quiver_api::startup::StartupResponder;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long a request waits for the end of the start. A client that gets 503 retries much later than most starts
/// take, and probes wait for about a second.
const PATIENCE: Duration = Duration::from_millis(500);

/// Holds the real router once it exists.
#[derive(Debug)]
pub(super) struct Gate {
    make: fn(Arc<AppState>) -> Router,
    inner: Arc<OnceLock<Router>>,
    starting: Arc<StartupResponder>,
    /// Cancelled once it exists.
    opened: CancellationToken,
}

impl Gate {
    pub(super) fn new(make: fn(Arc<AppState>) -> Router, starting: &Arc<StartupResponder>) -> Self {
        Self { make, inner: Arc::default(), starting: Arc::clone(starting), opened: CancellationToken::new() }
    }

    /// The router to serve from the start on.
    pub(super) fn router(&self) -> Router {
        let (inner, starting, opened) = (Arc::clone(&self.inner), Arc::clone(&self.starting), self.opened.clone());
        Router::new().fallback(move |request: Request| {
            let (inner, starting, opened) = (Arc::clone(&inner), Arc::clone(&starting), opened.clone());
            async move {
                if inner.get().is_none() && StartupResponder::can_wait(&request) {
                    let _ = tokio::time::timeout(PATIENCE, opened.cancelled()).await;
                }
                answer(&inner, &starting, request).await
            }
        })
    }

    /// Lets requests through to the real router.
    pub(super) fn open(&self, state: &Arc<AppState>) {
        let _ = self.inner.set((self.make)(Arc::clone(state)));
        self.opened.cancel();
    }
}

async fn answer(inner: &OnceLock<Router>, starting: &StartupResponder, request: Request) -> Response {
    match inner.get() {
        Some(router) => match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => starting.answer(&request),
    }
}
