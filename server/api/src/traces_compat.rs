//! Query APIs of other tools over the same engine: Jaeger (v1 and v3), Zipkin and Tempo (`traces-api` 4 and 5).

mod jaeger;
mod jaeger_metrics;
mod jaeger_v3;
mod tempo;
mod zipkin;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use quiver_traces::{ParamError, Trace, TraceError};
use quiver_types::ErrorKind;

use crate::error::{log, plain, public_text, status_of};
use crate::segments;
use crate::state::AppState;
use crate::unknown_parameters::refusal::is_text;

/// Paths of the APIs of Jaeger, Zipkin and Tempo.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let jaeger = jaeger::routes().merge(jaeger_metrics::routes()).merge(jaeger_v3::routes());
    jaeger.merge(zipkin::routes()).merge(tempo::routes())
}

/// The methods of Tempo's API over gRPC.
pub(crate) fn grpc_routes() -> Router<Arc<AppState>> {
    tempo::grpc_routes()
}

/// Zipkin's paths alone.
pub(crate) fn zipkin_routes() -> Router<Arc<AppState>> {
    zipkin::routes()
}

/// Refuses segments where they do not act, and paths that are no text, in the form that clients of the path read.
pub(crate) async fn refuse_segments(request: Request, next: Next) -> Response {
    let unreadable = (!is_text(request.uri().path())).then_some("the path is no UTF-8 text");
    match unreadable.or_else(|| segments::refusal(&request)) {
        Some(text) => refused(request.uri().path(), text),
        None => next.run(request).await,
    }
}

fn refused(path: &str, text: &str) -> Response {
    let error = TraceError::Param(ParamError::new("", text));
    if path.contains("/api/v3/") {
        return jaeger_v3::failed(&error);
    }
    // Zipkin and Tempo tell errors as plain text.
    if path.starts_with("/tempo/") || path.contains("/api/v2/") {
        return plain(StatusCode::BAD_REQUEST, text);
    }
    jaeger::failed(&error)
}

/// Gives status and text of an error.
fn status_and_text(error: &TraceError) -> (StatusCode, String) {
    let invalid = |text: String| (StatusCode::BAD_REQUEST, text);
    match error {
        TraceError::InvalidId => invalid("invalid trace id: expected 1 to 32 hexadecimal digits".into()),
        TraceError::Param(e) if e.name.is_empty() => invalid(e.reason.clone()),
        TraceError::Param(e) => invalid(format!("parameter '{}': {}", e.name, e.reason)),
        TraceError::Traceql(e) => invalid(format!("invalid TraceQL query: {e}")),
        TraceError::CursorMismatch => invalid("the cursor belongs to another search".into()),
        // That a hidden trace is there shows on the platform's own paths only.
        TraceError::NotFound | TraceError::Forbidden => (StatusCode::NOT_FOUND, "trace not found".into()),
        TraceError::TooLarge(most) => (StatusCode::PAYLOAD_TOO_LARGE, format!("more than {most} spans")),
        TraceError::Engine(e) => {
            log(e, "/api");
            let status = if e.kind == ErrorKind::Execution { StatusCode::BAD_REQUEST } else { status_of(e.kind) };
            (status, public_text(e).to_owned())
        }
    }
}

/// Number of spans of some traces.
fn spans_of(traces: &[Trace]) -> usize {
    traces.iter().map(|trace| trace.spans.len()).sum()
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, RETRY_AFTER};
    use http_body_util::BodyExt as _;
    use quiver_types::Error;

    use super::*;

    #[test]
    fn who_may_ask_again_is_told_when() {
        for (kind, expected) in [(ErrorKind::Unavailable, true), (ErrorKind::LimitExceeded, false)] {
            let error = TraceError::Engine(Error::new(kind, "x"));
            for answer in [jaeger::failed(&error), jaeger_v3::failed(&error)] {
                assert_eq!(answer.headers().contains_key(RETRY_AFTER), expected, "{kind:?}");
            }
        }
    }

    #[tokio::test]
    async fn each_api_is_told_in_its_form() {
        for (path, kind, part) in [
            ("/api/traces/1", "application/json", r#""errors":[{"code":400,"msg":"no"}]"#),
            ("/jaeger/api/metrics/calls", "application/json", r#""msg":"no""#),
            ("/api/v3/traces/1", "application/json", r#"{"error":{"httpCode":400,"message":"no"}}"#),
            ("/api/v2/trace/1", "text/plain; charset=utf-8", "no"),
            ("/zipkin/api/v2/traceMany", "text/plain; charset=utf-8", "no"),
            ("/tempo/api/traces/1", "text/plain; charset=utf-8", "no"),
        ] {
            let answer = refused(path, "no");
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
            assert_eq!(answer.headers()[CONTENT_TYPE], kind, "{path}");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert!(String::from_utf8_lossy(&body).contains(part), "{path}: {body:?}");
        }
    }

    #[test]
    fn errors_of_traces_have_a_status_and_a_text() {
        let check = |error: TraceError, status: u16, text: &str| {
            let (found, told) = status_and_text(&error);
            assert_eq!((found.as_u16(), told.as_str()), (status, text));
        };
        check(TraceError::InvalidId, 400, "invalid trace id: expected 1 to 32 hexadecimal digits");
        check(TraceError::Param(ParamError::new("limit", "is no number")), 400, "parameter 'limit': is no number");
        check(TraceError::Param(ParamError::new("", "too many of them")), 400, "too many of them");
        check(TraceError::CursorMismatch, 400, "the cursor belongs to another search");
        // Whether there is one that the caller may not see is not told.
        check(TraceError::NotFound, 404, "trace not found");
        check(TraceError::Forbidden, 404, "trace not found");
        check(TraceError::TooLarge(50_000), 413, "more than 50000 spans");
        for (kind, status) in [
            (ErrorKind::Invalid, 400),
            (ErrorKind::Execution, 400),
            (ErrorKind::LimitExceeded, 422),
            (ErrorKind::Cancelled, 422),
            (ErrorKind::Forbidden, 403),
            (ErrorKind::Timeout, 503),
            (ErrorKind::Internal, 500),
        ] {
            check(TraceError::Engine(Error::new(kind, "x")), status, "x");
        }
    }
}
