//! OTLP over gRPC on the main port: the same services as on their own port, told from HTTP by their paths.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use crate::logs_ingest::Logs;
use crate::otlp_grpc::{Metrics, OtlpService, Signal};
use crate::state::AppState;
use crate::traces_grpc::Traces;

/// All paths.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    signal::<Traces>().merge(signal::<Metrics>()).merge(signal::<Logs>())
}

fn signal<S: Signal>() -> Router<Arc<AppState>> {
    let handle = |State(state): State<Arc<AppState>>, request: Request| call(request, OtlpService::<S>::new(state));
    Router::new().route(&format!("/{}/Export", S::SERVICE), post(handle))
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
