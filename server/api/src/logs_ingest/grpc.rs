//! OTLP logs over gRPC.

use std::sync::Arc;

use axum::body::Bytes;
use http::HeaderMap;
use quiver_ingest::logs::{FieldOptions, otlp};
use quiver_ingest::{Encoding, content_encoding};
use quiver_types::Result;

use super::buffered_formats::{decode_and_write, export_response, has_own_thread, judge_otlp};
use super::metrics::Endpoint;
use super::request::{context, ours};
use crate::metrics::phases::Signal as Counted;
use crate::otlp_form::OtlpForm;
use crate::otlp_grpc::Signal;
use crate::state::AppState;

/// The logs signal.
#[derive(Debug)]
pub(crate) struct Logs;

impl Signal for Logs {
    const SERVICE: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
    const ROUTE: &'static str = "otlp/grpc/logs";
    const COUNTED: Counted = Counted::Logs;
    const ENCODINGS: &'static str = "identity,gzip,deflate,zstd,snappy";

    async fn export(state: &Arc<AppState>, headers: &HeaderMap, encoding: Encoding, body: Bytes) -> Result<Vec<u8>> {
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let options = FieldOptions::read(|_| None, header, &state.settings.logs.service_fields).map_err(ours)?;
        let ctx = context(state, options);
        let bytes_max = state.settings.decode_limits.body_bytes_max;
        let mut beside = state.capacity.bodies.share_beside(has_own_thread(&body));
        let decode = move |body: &[u8]| {
            let body = content_encoding::decompress(encoding, body, bytes_max, &mut |bytes| beside.hold(bytes))
                .map_err(ours)?;
            otlp::decode(&body, &ctx).map_err(ours)
        };
        let report = decode_and_write(state, Endpoint::OtlpGrpc, body, decode).await?;
        judge_otlp(&report)?;
        Ok(export_response(&report, OtlpForm::Protobuf))
    }
}
