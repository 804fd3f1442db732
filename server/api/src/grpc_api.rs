//! OTLP over gRPC on the main port: the same services as on their own port, told from HTTP by their paths.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use crate::logs_ingest::LogsService;
use crate::otlp_grpc::MetricsService;
use crate::state::AppState;
use crate::traces_grpc::TraceService;

/// All paths.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let path = |signal: &str, service: &str| format!("/opentelemetry.proto.collector.{signal}.v1.{service}/Export");
    Router::new()
        .route(&path("trace", "TraceService"), post(|state, request| call(request, traces(state))))
        .route(&path("metrics", "MetricsService"), post(|state, request| call(request, metrics(state))))
        .route(&path("logs", "LogsService"), post(|state, request| call(request, logs(state))))
}

fn traces(State(state): State<Arc<AppState>>) -> TraceService {
    TraceService(state)
}

fn metrics(State(state): State<Arc<AppState>>) -> MetricsService {
    MetricsService(state)
}

fn logs(State(state): State<Arc<AppState>>) -> LogsService {
    LogsService(state)
}

async fn call<S>(request: Request, service: S) -> Response
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    match service.oneshot(request.map(Body::new)).await {
        Ok(response) => response.map(axum::body::Body::new),
        Err(never) => match never {},
    }
}
