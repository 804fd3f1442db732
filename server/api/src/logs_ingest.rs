//! Logs over HTTP and gRPC: the endpoints of five formats, and the calls that shippers make before they send.
//!
//! `request` reads what all endpoints share (parameters, encoding, tenancy), `store` writes batches, `lines` streams
//! the two line formats, `whole` reads the others as a whole, `once` stores what names itself once, `search_engine` and
//! `handshake` answer the small calls.

mod grpc;
mod handshake;
mod lines;
pub mod metrics;
mod once;
mod request;
mod search_engine;
mod store;
mod whole;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};
use quiver_ingest::logs::{LogsLimits, SERVICE_FIELDS};

pub(crate) use grpc::Logs;

use crate::state::AppState;

/// How logs are taken in.
#[derive(Debug, Clone)]
pub struct LogsSettings {
    /// Bounds of rows and requests.
    pub limits: LogsLimits,
    /// Fields that name the service of a row.
    pub service_fields: Arc<[String]>,
    /// How far in the future a row may be, in nanoseconds; `None`: any.
    pub accept_future_ns: Option<i64>,
}

impl Default for LogsSettings {
    fn default() -> Self {
        Self {
            limits: LogsLimits::default(),
            service_fields: SERVICE_FIELDS.map(str::to_owned).into(),
            accept_future_ns: Some(2 * 86_400_000_000_000),
        }
    }
}

/// Routes of this family on the main port.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new()
        .route("/insert/ready", get(handshake::ready))
        .route("/insert/jsonline", post(lines::json_lines))
        .route("/insert/searchengine", any(search_engine::root))
        .route("/insert/searchengine/", any(search_engine::root))
        .route("/insert/searchengine/{*path}", any(search_engine::below))
        .route("/insert/aggregator/ready", get(handshake::aggregator_ready))
        .route("/insert/saas/api/v2/logs", post(whole::saas))
        .route("/insert/saas/api/v1/validate", any(handshake::validate))
        .route("/insert/opentelemetry/v1/logs", post(whole::otlp));
    for path in ["/insert/aggregator/api/v1/push", "/insert/aggregator/loki/api/v1/push", "/loki/api/v1/push"] {
        router = router.route(path, post(whole::push));
    }
    router.merge(otlp_routes())
}

/// Routes of this family on the OTLP port too.
pub(crate) fn otlp_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/logs", post(whole::otlp))
}
