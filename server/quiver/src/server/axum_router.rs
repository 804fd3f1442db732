//! A router that answers "starting" until the store is open.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use quiver_api::AppState;
use quiver_api::error::plain;
use tower::ServiceExt;

/// Holds the real router once there is one.
#[derive(Debug)]
pub(super) struct Gate {
    make: fn(Arc<AppState>) -> Router,
    inner: Arc<OnceLock<Router>>,
}

impl Gate {
    pub(super) fn new(make: fn(Arc<AppState>) -> Router) -> Self {
        Self { make, inner: Arc::default() }
    }

    /// Gives the router to serve from the start.
    pub(super) fn router(&self) -> Router {
        let inner = Arc::clone(&self.inner);
        Router::new().fallback(move |request: Request| {
            let inner = Arc::clone(&inner);
            async move { answer(&inner, request).await }
        })
    }

    /// Lets requests through.
    pub(super) fn open(&self, state: &Arc<AppState>) {
        let _ = self.inner.set((self.make)(Arc::clone(state)));
    }
}

async fn answer(inner: &OnceLock<Router>, request: Request) -> Response {
    match inner.get() {
        Some(router) => match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None if request.uri().path() == "/health/live" => plain(StatusCode::OK, "live"),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "starting: the log is being replayed"),
    }
}
