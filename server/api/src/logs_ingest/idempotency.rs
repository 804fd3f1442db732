//! `Idempotency-Key`: a request with this header is stored once, as a whole, and its repetitions get the first
//! response again.
//!
//! Two requests are the same if caller, path and key are. The whole body is decoded before anything is stored, so its
//! size is limited; rows and response are written to the store together. Only successful responses are kept: a
//! refused request stored nothing, and may be sent again under the same key, corrected or not.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use quiver_ingest::content_encoding::{pack, unpack};
use quiver_ingest::logs::Report;
use quiver_store::{Answer, KeyedWrite, RequestId};
use quiver_types::{Error, ErrorKind, LogsBatch, Result};

use super::metrics::Endpoint;
use super::store::{brought, count, extract, note_brought, note_records, refuse};
use crate::metrics::phases::{Signal, Step};
use crate::state::AppState;

const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// Marks a response as a repetition of an earlier one.
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");
const KEY_BYTES_MAX: usize = 255;
/// Largest compressed response that is kept.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A successful response, before it is sent.
#[derive(Debug)]
pub(super) struct Success {
    status: StatusCode,
    /// Media type of the body; empty: there is no body.
    content_type: &'static str,
    body: Vec<u8>,
}

impl Success {
    /// Makes a response with a body.
    pub(super) fn new(status: StatusCode, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, body: body.into() }
    }

    fn keep(&self) -> Result<Answer> {
        let body = pack(&self.body)?;
        if body.len() > ANSWER_BYTES_MAX {
            let text = "the answer is too large to be kept for `Idempotency-Key`; send fewer records in a request";
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        Ok(Answer { status: self.status.as_u16(), content_type: self.content_type.to_owned(), body })
    }
}

impl IntoResponse for Success {
    fn into_response(self) -> Response {
        response(self.status, HeaderValue::from_static(self.content_type), self.body)
    }
}

fn response(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    if !content_type.is_empty() {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response
}

fn replayed(answer: &Answer) -> Result<Response> {
    let bad = || Error::internal("a kept answer cannot be read");
    let status = StatusCode::from_u16(answer.status).map_err(|e| bad().with_source(e))?;
    let content_type = HeaderValue::from_str(&answer.content_type).map_err(|e| bad().with_source(e))?;
    let mut response = response(status, content_type, unpack(&answer.body)?);
    response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    Ok(response)
}

/// Reads the `Idempotency-Key` of a request; `None` if it has none.
///
/// # Errors
/// Invalid: it is empty, too long, not visible ASCII, or given twice.
pub(super) fn request_id(state: &AppState, head: &Parts) -> Result<Option<RequestId>> {
    let mut values = head.headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
    if values.next().is_some() {
        return Err(Error::invalid("`Idempotency-Key` is given more than once"));
    }
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::invalid("`Idempotency-Key` must be 1 to 255 visible ASCII characters"));
    }
    let (caller, path) = (state.caller(), head.uri.path().to_owned());
    Ok(Some(RequestId { caller, path, key: key.to_owned() }))
}

/// A request that was decoded completely.
#[derive(Debug)]
pub(super) struct CompleteRequest {
    /// All its log rows.
    pub(super) batches: Vec<LogsBatch>,
    /// The counts of its rows so far.
    pub(super) report: Report,
    /// Hash of the decompressed body.
    pub(super) body_hash: u128,
    /// Bytes of the body on the wire.
    pub(super) bytes: u64,
}

/// Stores a request unless it was stored before; returns its response either way, and counts the request.
///
/// # Errors
/// Those of the store and of `answer`. Execution: the key was used with another body.
pub(super) async fn write_once(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    id: RequestId,
    whole: CompleteRequest,
    answer: impl FnOnce(&Report) -> Result<Success>,
) -> Result<Response> {
    let CompleteRequest { mut batches, mut report, body_hash, bytes } = whole;
    extract(state, &mut batches);
    note_records(&batches);
    let brought = brought(state, &batches);
    let mut fresh = None;
    let written = state.engines.store.write_logs_once(id, body_hash, batches, |refused| {
        refuse(&mut report, refused.iter().copied());
        let success = answer(&report)?;
        let kept = success.keep()?;
        fresh = Some(success);
        Ok(kept)
    });
    let outcome = match state.metrics.phases.timed(Signal::Logs, Step::Store, written).await {
        Ok(KeyedWrite::Stored(_)) => {
            note_brought(&brought);
            fresh.map(IntoResponse::into_response).ok_or_else(|| Error::internal("no answer was made"))
        }
        Ok(KeyedWrite::Repeated(request)) => replayed(&request.answer),
        Err(e) => Err(e),
    };
    let stored = outcome.as_ref().is_ok_and(|response| !response.headers().contains_key(REPLAYED_HEADER));
    let nothing = Report::default();
    count(state, endpoint, bytes, if stored { &report } else { &nothing });
    outcome
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// Reads status, media type, whether it is a repetition, and body.
    async fn read(response: Response) -> (u16, Option<String>, bool, Vec<u8>) {
        let text = |name: HeaderName| response.headers().get(name).map(|v| v.to_str().expect("a text").to_owned());
        let (kind, is_replayed) = (text(header::CONTENT_TYPE), text(REPLAYED_HEADER).as_deref() == Some("true"));
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, kind, is_replayed, body.to_vec())
    }

    #[tokio::test]
    async fn answers_that_are_kept_are_given_again() {
        let long = "{\"a\": 1}\n".repeat(50_000);
        for (status, content_type, body) in [
            (StatusCode::OK, "application/json", long.as_str()),
            (StatusCode::CREATED, "text/plain; charset=utf-8", "größe"),
            (StatusCode::NO_CONTENT, "", ""),
        ] {
            let success = || Success::new(status, content_type, body);
            let kept = success().keep().expect("it is kept");
            let kind = (!content_type.is_empty()).then(|| content_type.to_owned());
            let first = read(success().into_response()).await;
            assert_eq!(first, (status.as_u16(), kind.clone(), false, body.as_bytes().to_vec()));
            let again = read(replayed(&kept).expect("an answer")).await;
            assert_eq!(again, (status.as_u16(), kind, true, body.as_bytes().to_vec()));
        }
    }

    #[test]
    fn large_answers_are_not_kept() {
        // Incompressible bytes.
        let mut state = 1_u64;
        let noise = (0..ANSWER_BYTES_MAX + 1024).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.collect();
        assert!(Success::new(StatusCode::OK, "", noise[..1024].to_vec()).keep().is_ok());
        let refused = Success::new(StatusCode::OK, "", noise).keep().expect_err("too large");
        assert_eq!(refused.kind, ErrorKind::TooLarge);
    }

    #[test]
    fn damaged_answers_are_faults_of_ours() {
        let kept = Success::new(StatusCode::OK, "text/plain", "a").keep().expect("it is kept");
        for damaged in [
            Answer { status: 99, ..kept.clone() },
            Answer { content_type: "a\nb".to_owned(), ..kept.clone() },
            Answer { body: b"no archive".to_vec(), ..kept },
        ] {
            let error = replayed(&damaged).expect_err("it is damaged");
            assert!(matches!(error.kind, ErrorKind::Internal | ErrorKind::Damaged), "{error:?}");
        }
    }
}
