//! OTLP logs over gRPC.

use std::sync::Arc;

use axum::body::Bytes;
use quiver_ingest::logs::{FieldOptions, otlp};
use quiver_types::Error;
use tonic::metadata::MetadataMap;

use super::metrics::Endpoint;
use super::request::{context, ours};
use super::whole::{decode_and_write, export_response};
use crate::otlp_grpc::Signal;
use crate::state::AppState;

/// The logs signal.
#[derive(Debug)]
pub struct Logs;

impl Signal for Logs {
    const SERVICE: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
    const ROUTE: &'static str = "otlp/grpc/logs";

    async fn export(state: &Arc<AppState>, metadata: &MetadataMap, body: Bytes) -> Result<Vec<u8>, Error> {
        let header = |name: &str| metadata.get(name).and_then(|v| v.to_str().ok());
        let options = FieldOptions::read(|_| None, header, &state.settings.logs.service_fields).map_err(ours)?;
        let ctx = context(state, options);
        let decode = move |body: &[u8]| otlp::decode(body, &ctx).map_err(ours);
        let report = decode_and_write(state, Endpoint::OtlpGrpc, body, decode).await?;
        Ok(export_response(&report, false))
    }
}
