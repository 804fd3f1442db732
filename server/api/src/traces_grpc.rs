//! OTLP traces over gRPC.

use std::sync::Arc;

use axum::body::Bytes;
use http::HeaderMap;
use quiver_ingest::Encoding;
use quiver_ingest::traces::TraceFormat;
use quiver_types::Result;

use crate::metrics::phases::Signal as Counted;
use crate::otlp_grpc::Signal;
use crate::state::AppState;
use crate::traces_ingest::decode_and_write;

/// The traces signal.
#[derive(Debug)]
pub(crate) struct Traces;

impl Signal for Traces {
    const SERVICE: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
    const ROUTE: &'static str = "otlp/grpc/traces";
    const COUNTED: Counted = Counted::Traces;

    async fn export(state: &Arc<AppState>, _: &HeaderMap, encoding: Encoding, body: Bytes) -> Result<Vec<u8>> {
        let encoding = Some(encoding.name().to_owned());
        Ok(decode_and_write(state, TraceFormat::Otlp, encoding, body).await?.to_protobuf())
    }
}
