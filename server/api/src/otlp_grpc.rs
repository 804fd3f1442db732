//! OTLP over gRPC: one unary call per signal. What its messages bring is stored as what comes over HTTP.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use http::HeaderMap;
use quiver_ingest::{Encoding, formats};
use quiver_types::Result;

use crate::body_memory::read_body;
use crate::grpc_call::{FRAME_BYTES, Method, answered, encoding_of, encoding_within, message, unframe};
use crate::handlers::boxed;
use crate::ingest_api::{decode_and_write, export_outcome, export_response};
use crate::metrics::phases;
use crate::otlp_form::OtlpForm;
use crate::state::AppState;

/// A signal and what to do with its messages.
pub(crate) trait Signal: Send + Sync + 'static {
    /// Full name of the gRPC service.
    const SERVICE: &'static str;
    /// The route's name in logs.
    const ROUTE: &'static str;
    /// The signal under which durations are counted.
    const COUNTED: phases::Signal;
    /// The supported compressions of its messages, for `grpc-accept-encoding`.
    const ENCODINGS: &'static str = "identity,gzip,deflate,zstd";

    /// Ingests an export request. Returns the export response.
    fn export(
        state: &Arc<AppState>,
        headers: &HeaderMap,
        encoding: Encoding,
        body: Bytes,
    ) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// The metrics signal.
#[derive(Debug)]
pub(crate) struct Metrics;

impl Signal for Metrics {
    const SERVICE: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
    const ROUTE: &'static str = "otlp/grpc/metrics";
    const COUNTED: phases::Signal = phases::Signal::Metrics;

    async fn export(state: &Arc<AppState>, _: &HeaderMap, encoding: Encoding, body: Bytes) -> Result<Vec<u8>> {
        let encoding = Some(encoding.name().to_owned());
        let written = decode_and_write(state, &formats::otlp_metrics::FORMAT, encoding, body).await?;
        let (rejected, text) = export_outcome(&written)?;
        Ok(export_response(rejected, &text, OtlpForm::Protobuf))
    }
}

/// Path and handler of a signal.
pub(crate) fn route<S: Signal>() -> (String, MethodRouter<Arc<AppState>>) {
    (format!("/{}/Export", S::SERVICE), post(boxed(handle::<S>)))
}

async fn handle<S: Signal>(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(&state, method_of::<S>(), request, |request| export::<S>(&state, request)).await
}

fn method_of<S: Signal>() -> Method {
    Method { route: S::ROUTE, encodings: S::ENCODINGS }
}

async fn export<S: Signal>(state: &Arc<AppState>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let encoding = encoding_of(&head.headers)?;
    let bytes_max = state.settings.body_bytes_max.saturating_add(FRAME_BYTES);
    let body = read_body(&state.capacity.bodies, &head.headers, body, bytes_max);
    let body = state.metrics.phases.timed(S::COUNTED, phases::Step::Read, body).await?;
    let (packed, body) = unframe(body)?;
    let answer = S::export(state, &head.headers, encoding_within(packed, encoding)?, body).await?;
    Ok(message(&answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_those_of_the_signal() {
        use crate::{logs_ingest::Logs, traces_grpc::Traces};

        fn told<S: Signal>() -> String {
            method_of::<S>().encodings.to_owned()
        }
        // The decoders of metrics and traces refuse snappy.
        assert_eq!(told::<Metrics>(), "identity,gzip,deflate,zstd");
        assert_eq!(told::<Traces>(), told::<Metrics>());
        let taken = |name: &str| formats::otlp_metrics::FORMAT.encodings.iter().any(|one| one.name() == name);
        assert!(told::<Metrics>().split(',').all(|name| name == "identity" || taken(name)));
        assert_eq!(told::<Logs>(), "identity,gzip,deflate,zstd,snappy");
    }
}
