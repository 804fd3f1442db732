//! OTLP over gRPC: the metrics service, with bodies as raw bytes, since the decoder reads the wire format itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use bytes::{Buf, BufMut};
use futures::future::BoxFuture;
use http::{Request, Response};
use quiver_ingest::formats;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Status};

use crate::error::{grpc_code_of, log, public_text};
use crate::ingest_api::{decode_and_write, export_response};
use crate::state::AppState;

/// `opentelemetry.proto.collector.metrics.v1.MetricsService`.
#[derive(Debug, Clone)]
pub struct MetricsService(pub Arc<AppState>);

impl NamedService for MetricsService {
    const NAME: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
}

impl tower::Service<Request<Body>> for MetricsService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" {
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
            let format = &formats::otlp_metrics::FORMAT;
            let written = decode_and_write(&state, format, None, request.into_inner()).await.map_err(|e| {
                log(&e, "otlp/grpc");
                Status::new(grpc_code_of(e.kind), public_text(&e))
            })?;
            let text = written.refusal_text(|r| !r.is_silent()).unwrap_or_default();
            Ok(tonic::Response::new(export_response(written.refused_count(), &text, false)))
        })
    }
}

/// Passes message bytes through.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let len = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(len)))
    }
}
