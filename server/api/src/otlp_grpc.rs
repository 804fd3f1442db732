//! OTLP over gRPC: one service for each signal, with bodies as raw bytes, since the decoders read the wire format themselves.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use bytes::{Buf, BufMut};
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use quiver_ingest::formats;
use quiver_ingest::wire::{put_bytes, put_varint};
use quiver_types::{Error, ErrorKind};
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Status};

use crate::bodies::counted;
use crate::error::{grpc_code_of, log, public_text};
use crate::ingest_api::{decode_and_write, export_response};
use crate::state::AppState;

/// What becomes of the messages of a signal.
pub trait Signal: Send + Sync + 'static {
    /// Full name of the service.
    const SERVICE: &'static str;
    /// Name in logs.
    const ROUTE: &'static str;

    /// Takes an export request in; gives the export response.
    fn export(
        state: &Arc<AppState>,
        metadata: &MetadataMap,
        body: Bytes,
    ) -> impl Future<Output = Result<Vec<u8>, Error>> + Send;
}

/// The metrics signal.
#[derive(Debug)]
pub struct Metrics;

impl Signal for Metrics {
    const SERVICE: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
    const ROUTE: &'static str = "otlp/grpc/metrics";

    async fn export(state: &Arc<AppState>, _: &MetadataMap, body: Bytes) -> Result<Vec<u8>, Error> {
        let written = decode_and_write(state, &formats::otlp_metrics::FORMAT, None, body).await?;
        let text = written.refusal_text(|r| !r.is_silent()).unwrap_or_default();
        Ok(export_response(written.refused_count(), &text, false))
    }
}

/// The collector's service of a signal.
#[derive(Debug)]
pub struct OtlpService<S> {
    state: Arc<AppState>,
    signal: PhantomData<fn() -> S>,
}

impl<S> OtlpService<S> {
    /// Makes the service.
    pub fn new(state: Arc<AppState>) -> Self {
        Self { state, signal: PhantomData }
    }
}

impl<S> Clone for OtlpService<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.state))
    }
}

impl<S: Signal> NamedService for OtlpService<S> {
    const NAME: &'static str = S::SERVICE;
}

impl<S: Signal> tower::Service<Request<Body>> for OtlpService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let method = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(S::SERVICE));
            if method != Some("/Export") {
                return Ok(Status::new(Code::Unimplemented, "unknown method").into_http());
            }
            let limit = service.state.settings.decode_limits.body_bytes_max;
            let mut grpc = Grpc::new(RawCodec)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd)
                .max_decoding_message_size(limit);
            let (head, body) = request.into_parts();
            let (body, guard) = counted(&service.state.bodies, axum::body::Body::new(body));
            let retry_after_s = service.state.settings.retry_after_s;
            let mut response = grpc.unary(service, Request::from_parts(head, body)).await;
            if let Some(error) = guard.refused().await {
                return Ok(status(&error, retry_after_s).into_http());
            }
            // A message that is too large is "out of range" there, which senders take for something else.
            if response.headers().get("grpc-status").is_some_and(|code| code == "11") {
                response.headers_mut().insert("grpc-status", HeaderValue::from_static("8"));
            }
            Ok(response)
        })
    }
}

impl<S: Signal> UnaryService<Bytes> for OtlpService<S> {
    type Response = Vec<u8>;
    type Future = BoxFuture<'static, Result<tonic::Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let (metadata, _, body) = request.into_parts();
            let answer = S::export(&state, &metadata, body).await.map_err(|e| {
                log(&e, S::ROUTE);
                status(&e, state.settings.retry_after_s)
            })?;
            Ok(tonic::Response::new(answer))
        })
    }
}

/// Gives the status of an error. Only what may be repeated says when.
fn status(error: &Error, retry_after_s: u32) -> Status {
    let text = public_text(error);
    if error.kind != ErrorKind::Unavailable {
        return Status::new(grpc_code_of(error.kind), text);
    }
    // google.rpc.Status { code, message, details: [Any { type_url, value: RetryInfo { retry_delay } }] }
    let (mut delay, mut info, mut any, mut out) = (vec![0x08], Vec::new(), Vec::new(), vec![0x08]);
    put_varint(&mut delay, u64::from(retry_after_s));
    put_bytes(&mut info, 1, &delay);
    put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes(&mut any, 2, &info);
    put_varint(&mut out, Code::Unavailable as u64);
    put_bytes(&mut out, 2, text.as_bytes());
    put_bytes(&mut out, 3, &any);
    Status::with_details(Code::Unavailable, text, out.into())
}

/// Passes message bytes through.
#[derive(Debug, Clone, Copy, Default)]
struct RawCodec;

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
