//! OTLP logs over gRPC.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use quiver_ingest::logs::{FieldOptions, otlp};
use quiver_types::Error;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Status};

use super::metrics::Endpoint;
use super::request::{context, ours};
use super::whole::{decode_and_write, export_response};
use crate::error::{grpc_code_of, log, public_text};
use crate::otlp_grpc::RawCodec;
use crate::state::AppState;

/// `opentelemetry.proto.collector.logs.v1.LogsService`.
#[derive(Debug, Clone)]
pub struct LogsService(pub Arc<AppState>);

impl NamedService for LogsService {
    const NAME: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
}

impl tower::Service<Request<Body>> for LogsService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != "/opentelemetry.proto.collector.logs.v1.LogsService/Export" {
                return Ok(Status::new(Code::Unimplemented, "unknown method").into_http());
            }
            let limit = state.settings.decode_limits.body_bytes_max;
            let mut grpc = Grpc::new(RawCodec)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd)
                .max_decoding_message_size(limit);
            Ok(grpc.unary(Export(state), request).await)
        })
    }
}

struct Export(Arc<AppState>);

impl UnaryService<Bytes> for Export {
    type Response = Vec<u8>;
    type Future = BoxFuture<'static, Result<tonic::Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            let (metadata, _, body) = request.into_parts();
            let report = export(&state, &metadata, body).await.map_err(|e| {
                log(&e, "otlp/grpc/logs");
                Status::new(grpc_code_of(e.kind), public_text(&e))
            })?;
            Ok(tonic::Response::new(export_response(&report, false)))
        })
    }
}

async fn export(
    state: &Arc<AppState>,
    metadata: &MetadataMap,
    body: Bytes,
) -> Result<quiver_ingest::logs::Report, Error> {
    let header = |name: &str| metadata.get(name).and_then(|v| v.to_str().ok());
    let options = FieldOptions::read(|_| None, header, &state.settings.logs.service_fields).map_err(ours)?;
    let ctx = context(state, options);
    decode_and_write(state, Endpoint::OtlpGrpc, body, move |body| otlp::decode(body, &ctx).map_err(ours)).await
}
