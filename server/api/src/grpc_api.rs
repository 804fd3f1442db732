//! Services of gRPC: OTLP's, and Tempo's for queries. They are on a port of their own and on the main one, where their paths
//! tell them from HTTP: Grafana calls Tempo at the host and port of its URL.

use std::sync::Arc;

use axum::Router;

use crate::logs_ingest::Logs;
use crate::otlp_grpc::{Metrics, route};
use crate::state::AppState;
use crate::traces_compat;
use crate::traces_grpc::Traces;

/// The methods of all gRPC services, each at `/package.Service/Method`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = traces_compat::grpc_routes();
    for (path, handler) in [route::<Traces>(), route::<Metrics>(), route::<Logs>()] {
        router = router.route(&path, handler);
    }
    router
}
