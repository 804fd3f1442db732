//! OTLP over gRPC: the trace service, with bodies as raw bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use quiver_ingest::traces::TraceFormat;
use quiver_ingest::wire::{put_bytes, put_varint};
use quiver_types::{Error, ErrorKind};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Status};

use crate::error::{grpc_code_of, log, public_text};
use crate::otlp_grpc::RawCodec;
use crate::state::AppState;
use crate::traces_ingest::decode_and_write;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// `opentelemetry.proto.collector.trace.v1.TraceService`.
#[derive(Debug, Clone)]
pub struct TraceService(pub Arc<AppState>);

impl NamedService for TraceService {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl tower::Service<Request<Body>> for TraceService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != EXPORT {
                return Ok(Status::new(Code::Unimplemented, "unknown method").into_http());
            }
            let limit = state.settings.decode_limits.body_bytes_max;
            let mut grpc = Grpc::new(RawCodec)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd)
                .max_decoding_message_size(limit);
            let mut response = grpc.unary(Export(state), request).await;
            // A message that is too large is "out of range" there, which senders take for something else.
            if response.headers().get("grpc-status").is_some_and(|code| code == "11") {
                response.headers_mut().insert("grpc-status", HeaderValue::from_static("8"));
            }
            Ok(response)
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
            let written = decode_and_write(&state, TraceFormat::Otlp, None, request.into_inner()).await;
            let partial = written.map_err(|e| {
                log(&e, "otlp/grpc");
                status(&e, state.settings.retry_after_s)
            })?;
            Ok(tonic::Response::new(partial.to_protobuf()))
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
