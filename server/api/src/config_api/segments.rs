//! Segments beyond the contract (`config-api` 3.5).

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use quiver_config::families::SEGMENTS;

use super::operation::special_at;
use crate::segments::preview::preview;
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(&format!("{}/preview", SEGMENTS.path), special_at(&SEGMENTS, MethodFilter::POST, preview))
}
