//! OTLP traces over gRPC.

use std::sync::Arc;

use axum::body::Bytes;
use quiver_ingest::traces::TraceFormat;
use quiver_types::Error;
use tonic::metadata::MetadataMap;

use crate::otlp_grpc::Signal;
use crate::state::AppState;
use crate::traces_ingest::decode_and_write;

/// The traces signal.
#[derive(Debug)]
pub struct Traces;

impl Signal for Traces {
    const SERVICE: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
    const ROUTE: &'static str = "otlp/grpc/traces";

    async fn export(state: &Arc<AppState>, _: &MetadataMap, body: Bytes) -> Result<Vec<u8>, Error> {
        Ok(decode_and_write(state, TraceFormat::Otlp, None, body).await?.to_protobuf())
    }
}
