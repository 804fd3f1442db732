//! OTLP over gRPC: the same services on their own port and on the main one, where their paths tell them from HTTP.

use std::sync::Arc;

use axum::Router;

use crate::logs_ingest::Logs;
use crate::otlp_grpc::{Metrics, route};
use crate::state::AppState;
use crate::traces_grpc::Traces;

/// The methods of all gRPC services, each at `/package.Service/Method`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for (path, handler) in [route::<Traces>(), route::<Metrics>(), route::<Logs>()] {
        router = router.route(&path, handler);
    }
    router
}
