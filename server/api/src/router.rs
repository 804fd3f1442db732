//! The router: one line per family of endpoints.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use quiver_ingest::formats::FORMATS;
use tower::ServiceBuilder;
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use crate::error::plain;
use crate::fallback::{not_allowed, not_found, not_on_grpc_port, not_on_this_port};
use crate::handlers::boxed;
use crate::middleware::around;
use crate::request_context::RequestInfo;
use crate::response_memory::AnswerBudget;
use crate::response_pressure::HeldResources;
use crate::state::AppState;
use crate::{
    admin, alerting, config_api, explain_plans, grpc_api, import_api, ingest_api, jobs, logs_api, logs_ingest,
    metrics_api, olap_api, openapi, rbac_api, segments, sql_api, token_api, traces_api, traces_compat, traces_ingest,
};

/// The path of OTLP on its own port.
const OTLP_PATH: &str = "/v1/metrics";

/// The answer at the base address of the Prometheus API.
const PROMETHEUS_ADDRESS: &str = "Clients of Prometheus take this address; a query is at `/metrics-api/api/v1/query`.";

/// The router of the main port.
pub fn main_router(state: Arc<AppState>) -> Router {
    finish(main_routes().fallback(not_found), state)
}

fn main_routes() -> Router<Arc<AppState>> {
    let metrics = metrics_api::routes().merge(import_api::routes()).merge(alerting::rules::routes());
    let compatible = traces_compat::routes().layer(middleware::from_fn(explain_plans::plain));
    let mut router = Router::new()
        .merge(admin::routes())
        .merge(logs_ingest::routes())
        .merge(traces_ingest::routes())
        .merge(traces_api::routes().layer(middleware::from_fn(explain_plans::plain)))
        .merge(compatible.layer(middleware::from_fn(traces_compat::refuse_segments)))
        .merge(olap_api::routes().layer(middleware::from_fn(segments::refuse)))
        .merge(grpc_api::routes())
        .merge(token_api::routes())
        .merge(rbac_api::routes())
        .merge(config_api::routes())
        .merge(jobs::routes())
        .merge(openapi::routes())
        .merge(alerting::routes())
        .nest("/metrics-api", metrics.layer(middleware::from_fn(segments::refuse)))
        // Clients ask for the address that they are given to see whether there is a Prometheus.
        .route("/metrics-api/", get(boxed(|| async { plain(StatusCode::OK, PROMETHEUS_ADDRESS) })))
        .merge(logs_api::routes())
        .merge(sql_api::routes().layer(middleware::from_fn(segments::refuse)));
    let mut paths: Vec<&str> = FORMATS.iter().flat_map(|f| f.paths).copied().collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        router = router.route(path, post(boxed(ingest_api::ingest_metrics)));
    }
    router
}

/// The router of the OTLP/HTTP port.
pub fn otlp_router(state: Arc<AppState>) -> Router {
    finish(otlp_routes().fallback(not_on_this_port), state)
}

fn otlp_routes() -> Router<Arc<AppState>> {
    logs_ingest::otlp_routes()
        .merge(traces_ingest::otlp_routes())
        .route(OTLP_PATH, post(boxed(ingest_api::ingest_metrics)))
        .route("/health/ready", get(boxed(admin::ready)))
}

/// The router of the OTLP/gRPC port.
pub fn grpc_router(state: Arc<AppState>) -> Router {
    finish(grpc_api::routes().fallback(not_on_grpc_port), state)
}

/// The router of Zipkin's own port: its API and nothing else.
pub fn zipkin_router(state: Arc<AppState>) -> Router {
    finish(zipkin_routes().fallback(not_on_this_port), state)
}

fn zipkin_routes() -> Router<Arc<AppState>> {
    traces_compat::zipkin_routes()
        .layer(middleware::from_fn(traces_compat::refuse_segments))
        .layer(middleware::from_fn(explain_plans::plain))
        .route("/health/ready", get(boxed(admin::ready)))
}

/// The routes of all ports, for tests that walk them.
#[cfg(test)]
pub(crate) fn all_routes() -> [Router<Arc<AppState>>; 4] {
    [main_routes(), otlp_routes(), grpc_api::routes(), zipkin_routes()]
}

/// Adds what happens around every request. A single layer does all of it: each layer of a router is a boxed service,
/// which is cloned for each request once per layer above it.
fn finish(router: Router<Arc<AppState>>, state: Arc<AppState>) -> Router {
    let answers = state.capacity.answers.clone();
    let layers = ServiceBuilder::new()
        .layer(middleware::from_fn_with_state(Arc::clone(&state), around))
        .layer(CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            tracing::error!(panic = text, "a request met a fault of ours");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }))
        // A slow client has its encoder for as long as it reads, so these are small: of zstd 1 MiB at level 1, at 3, the usual
        // one, almost 4. Brotli is for clients that accept nothing else: from quality 2 on it holds 8 MiB. The last layer
        // chooses first.
        .layer(CompressionLayer::new().no_gzip().no_zstd().quality(CompressionLevel::Precise(1)))
        .layer(CompressionLayer::new().no_br().no_zstd())
        .layer(CompressionLayer::new().no_br().no_gzip().quality(CompressionLevel::Precise(1)))
        .then(move |answer: Result<Response, Infallible>| counted(answers.clone(), answer));
    router.method_not_allowed_fallback(not_allowed).layer(layers).with_state(state)
}

/// Charges the response to the memory budget until it is sent, and tells the connection what it holds. Applied inside of
/// compression, which hides its length.
async fn counted(answers: AnswerBudget, answer: Result<Response, Infallible>) -> Result<Response, Infallible> {
    let mut answer = answers.count(answer?).await;
    if answer.body().size_hint().exact().is_some() {
        return Ok(answer);
    }
    for held in RequestInfo::contended_resources() {
        HeldResources::add(&mut answer, held);
    }
    // Brotli's encoder polls the stream once more after its end, which an unfolded stream does not allow.
    Ok(answer.map(|body| Body::new(body.fuse())))
}
