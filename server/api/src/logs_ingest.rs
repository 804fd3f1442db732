//! Logs over HTTP and gRPC: the endpoints of seven formats, and the calls that log shippers make before they send.
//!
//! `request` reads what all endpoints share (parameters, encoding, tenancy), `store` writes batches, `lines` streams
//! the line formats, `buffered_formats` reads the others as a whole, `idempotency` handles idempotency keys,
//! `search_engine` and `handshake` answer the small calls.

mod buffered_formats;
mod decoders;
mod grpc;
mod handshake;
mod idempotency;
mod lines;
pub mod metrics;
mod request;
mod search_engine;
pub mod settings;
mod store;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

pub(crate) use grpc::Logs;
pub(crate) use search_engine::refusal as search_engine_refusal;

use crate::handlers::boxed;
use crate::state::AppState;

/// Names of formats in paths: ours, and those of the service whose shippers are pointed here.
const SEARCH_ENGINE: [&str; 2] = ["searchengine", "elasticsearch"];
const AGGREGATOR: [&str; 2] = ["aggregator", "loki"];
const SAAS: [&str; 2] = ["saas", "datadog"];

/// Routes of this family on the main port: below `/insert`, and below `/logs-api/insert` beside the queries.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    // Clients of these formats are told a host, and not a path.
    let bare = Router::new()
        .route("/loki/api/v1/push", post(boxed(buffered_formats::push)))
        .route("/api/v2/logs", post(boxed(buffered_formats::saas)))
        .route("/api/v1/validate", get(boxed(handshake::validate)))
        .merge(otlp_routes());
    let bare = with_collector(bare, "");
    ["/insert", "/logs-api/insert"].iter().fold(bare, |router, base| router.merge(below(base)))
}

/// Adds Splunk's collector below a path.
fn with_collector(mut router: Router<Arc<AppState>>, above: &str) -> Router<Arc<AppState>> {
    for path in ["", "/event", "/event/1.0"] {
        let path = format!("{above}/services/collector{path}");
        router = router.route(&path, post(boxed(buffered_formats::events)));
    }
    for path in ["/raw", "/raw/1.0"] {
        let path = format!("{above}/services/collector{path}");
        router = router.route(&path, post(boxed(buffered_formats::event_lines)));
    }
    for path in ["/health", "/health/1.0"] {
        let path = format!("{above}/services/collector{path}");
        router = router.route(&path, get(boxed(handshake::collector_ready)));
    }
    router
}

fn below(base: &str) -> Router<Arc<AppState>> {
    let mut router = Router::new()
        .route(&format!("{base}/ready"), get(boxed(handshake::ready)))
        .route(&format!("{base}/jsonline"), post(boxed(lines::json_lines)))
        .route(&format!("{base}/journald/upload"), post(boxed(lines::journal)))
        .route(&format!("{base}/opentelemetry/v1/logs"), post(boxed(buffered_formats::otlp)));
    for name in SEARCH_ENGINE {
        router = router
            .route(&format!("{base}/{name}"), any(boxed(search_engine::root)))
            .route(&format!("{base}/{name}/"), any(boxed(search_engine::root)))
            .route(&format!("{base}/{name}/{{*path}}"), any(boxed(search_engine::dispatch)));
    }
    for name in AGGREGATOR {
        router = router.route(&format!("{base}/{name}/ready"), get(boxed(handshake::aggregator_ready)));
        for path in ["api/v1/push", "loki/api/v1/push"] {
            router = router.route(&format!("{base}/{name}/{path}"), post(boxed(buffered_formats::push)));
        }
    }
    router = with_collector(router, &format!("{base}/splunk"));
    for name in SAAS {
        router = router
            .route(&format!("{base}/{name}/api/v2/logs"), post(boxed(buffered_formats::saas)))
            .route(&format!("{base}/{name}/api/v1/validate"), any(boxed(handshake::validate)));
    }
    router
}

/// Routes of this family on the OTLP port too.
pub(crate) fn otlp_routes() -> Router<Arc<AppState>> {
    Router::new().route("/v1/logs", post(boxed(buffered_formats::otlp)))
}
