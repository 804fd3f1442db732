//! A router that answers "starting" until the store is open.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use quiver_api::AppState;
use quiver_api::starting::Starting;
use tower::ServiceExt;

/// Holds the real router once there is one.
#[derive(Debug)]
pub(super) struct Gate {
    make: fn(Arc<AppState>) -> Router,
    inner: Arc<OnceLock<Router>>,
    starting: Arc<Starting>,
}

impl Gate {
    pub(super) fn new(make: fn(Arc<AppState>) -> Router, starting: &Arc<Starting>) -> Self {
        Self { make, inner: Arc::default(), starting: Arc::clone(starting) }
    }

    /// Gives the router to serve from the start.
    pub(super) fn router(&self) -> Router {
        let (inner, starting) = (Arc::clone(&self.inner), Arc::clone(&self.starting));
        Router::new().fallback(move |request: Request| {
            let (inner, starting) = (Arc::clone(&inner), Arc::clone(&starting));
            async move { answer(&inner, &starting, request).await }
        })
    }

    /// Lets requests through.
    pub(super) fn open(&self, state: &Arc<AppState>) {
        let _ = self.inner.set((self.make)(Arc::clone(state)));
    }
}

async fn answer(inner: &OnceLock<Router>, starting: &Starting, request: Request) -> Response {
    match inner.get() {
        Some(router) => match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => starting.answer(&request),
    }
}
