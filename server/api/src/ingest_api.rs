//! Ingest over HTTP: one handler for all formats of the registry; responses as each protocol defines them.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use quiver_ingest::otlp::response::PartialSuccess;
use quiver_ingest::{Context, DecodedMetrics, Format, Limits, Reason, Sender, formats, within};
use quiver_store::{Refusal, WriteOutcome};
use quiver_types::{Domain, Error, ErrorKind, Result};

use crate::body_memory::read_body;
use crate::encode::prometheus::error_response;
use crate::error::{log, plain, public_text, status_of, with_retry_after};
use crate::forbidden_records;
use crate::metrics::phases::{Signal, Step};
use crate::otlp_form::OtlpForm;
use crate::request_context::RequestInfo;
use crate::state::AppState;
use crate::usage::AcceptedRecords;

/// Bodies above this are decoded away from the threads that serve sockets.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// What became of a request: what the decoder and the store left out, and what was written.
#[derive(Debug)]
pub struct IngestOutcome {
    /// What the decoder left out.
    pub decoded: DecodedMetrics,
    /// What the store took.
    pub outcome: WriteOutcome,
}

impl IngestOutcome {
    /// Counts samples and histograms that the store refused.
    fn refused(&self) -> impl Iterator<Item = &(Refusal, u64)> {
        self.outcome.refused.iter().filter(|(why, _)| *why != Refusal::ExemplarTime)
    }

    /// Gives the text that names everything left out; `None` when all was taken.
    pub fn refusal_text(&self, like: impl Fn(Reason) -> bool) -> Option<String> {
        let mut texts: Vec<String> = self.decoded.rejected_text(like).into_iter().collect();
        texts.extend(self.refused().map(|(why, n)| format!("{n} refused: {}", why.text())));
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Counts everything left out.
    pub fn refused_count(&self) -> u64 {
        self.decoded.rejected_count(|r| !r.is_silent()) + self.refused().map(|(_, n)| n).sum::<u64>()
    }

    /// Counts what the sender may not write; an error that `like` makes when that was all.
    fn judge(&self, like: impl Fn(Domain, Option<&str>) -> Error) -> Result<()> {
        let forbidden = self.decoded.forbidden();
        forbidden_records::note(forbidden);
        let nothing = self.outcome.samples + self.outcome.histograms + self.outcome.exemplars == 0;
        let all = forbidden > 0 && nothing && forbidden == self.refused_count();
        if all { Err(like(Domain::Metrics, self.decoded.first_forbidden())) } else { Ok(()) }
    }

    /// Whether something was refused that the same sender may get rid of later.
    fn retryable(&self) -> bool {
        self.outcome.refused.iter().any(|(why, _)| *why == Refusal::SeriesLimit)
    }
}

/// Decodes a body and writes what it holds.
///
/// # Errors
/// Those of the decoder and of the store; then nothing of the request was written, or repeating it is safe.
pub async fn decode_and_write(
    state: &Arc<AppState>,
    format: &'static Format,
    encoding: Option<String>,
    body: Bytes,
) -> Result<IngestOutcome> {
    let own_thread = body.len() > INLINE_BYTES_MAX;
    // Held until the samples are stored.
    let room = state.capacity.bodies.decoding_on(own_thread);
    let decode = {
        let (state, sender, room) = (Arc::clone(state), metrics_sender(state), Arc::clone(&room));
        move |body: Bytes| {
            let now_ms = state.clock.now_ms();
            let (earliest_ms, latest_ms) = state.engines.store.settings().accepted_times(now_ms);
            let ctx = Context {
                limits: Limits { earliest_ms, latest_ms, ..state.settings.decode_limits },
                otlp: &state.settings.otlp,
                delta: &state.delta,
                now_ms,
                sender: sender.as_ref(),
            };
            let mut beside = state.capacity.bodies.share_beside(own_thread);
            let hold = &mut |bytes| beside.hold(bytes);
            let decoded = within(room, || format.decode_request(encoding.as_deref(), &body, &ctx, hold));
            decoded.map_err(|e| Error::new(e.kind(), e.to_string()))
        }
    };
    let phases = &state.metrics.phases;
    let began = Instant::now();
    let mut decoded = if own_thread {
        tokio::task::spawn_blocking(move || decode(body))
            .await
            .map_err(|e| Error::internal("the decoder met a fault of ours; the log has it").with_source(e))??
    } else {
        decode(body)?
    };
    phases.step(Signal::Metrics, Step::Decode, began.elapsed());
    let batch = std::mem::take(&mut decoded.batch);
    RequestInfo::note_records(batch.records() as u64);
    let mut sent = AcceptedRecords::default();
    batch.ts.iter().for_each(|&time| sent.add(time));
    let outcome = if batch.is_empty() {
        WriteOutcome::default()
    } else {
        phases.timed(Signal::Metrics, Step::Store, state.engines.store.write_metrics(batch)).await?
    };
    // Once the rest is stored, since the sender repeats a request that failed.
    state.metrics.rejections.count(format.name, &decoded.rejected);
    let written = IngestOutcome { decoded, outcome };
    let forbidden = written.decoded.forbidden();
    let taken = written.outcome.samples + written.outcome.histograms + written.outcome.exemplars;
    // When those that were not taken were is nothing that tells how long the others took.
    let brought = if sent.records == taken { sent } else { AcceptedRecords::untimed(taken) };
    note_taken(brought, written.refused_count().saturating_sub(forbidden), forbidden);
    Ok(written)
}

/// Notes samples and the like: which services they are of is known to the store alone.
pub(crate) fn note_taken(brought: AcceptedRecords, invalid: u64, forbidden: u64) {
    RequestInfo::note_taken(|taken| {
        if brought.records > 0 {
            taken.add_records("metrics", "", brought);
        }
        for (reason, count) in [("invalid", invalid), ("service", forbidden)].into_iter().filter(|(_, n)| *n > 0) {
            taken.add_rejected("metrics", reason, count);
        }
    });
}

/// Whose series the caller may write; none: all.
pub(crate) fn metrics_sender(state: &AppState) -> Option<Arc<Sender>> {
    forbidden_records::sender(state.ingest_access(Domain::Metrics), || {
        state.engines.store.settings().service_labels.clone().into()
    })
}

/// Stores metrics that were sent in any format of the registry.
pub(crate) async fn ingest_metrics(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let text = |name: header::HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let (content_type, encoding) = (text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
    let path = head.uri.path().to_owned();
    let format = match formats::find(&path, content_type.as_deref()) {
        Ok(format) => format,
        Err(e) => return plain(status_of(e.kind()), e.to_string()),
    };
    let body = read_body(&state.capacity.bodies, &head.headers, body, state.settings.body_bytes_max);
    let written = match state.metrics.phases.timed(Signal::Metrics, Step::Read, body).await {
        Ok(body) => decode_and_write(&state, format, encoding, body).await,
        Err(e) => Err(e),
    };
    if let Err(e) = &written {
        log(e, &path);
    }
    match format.name {
        "remote_write" => remote_write(written, RemoteWrite::V1),
        "remote_write2" => remote_write(written, RemoteWrite::V2),
        "otlp_metrics_json" => otlp(written, OtlpForm::Json),
        _ => otlp(written, OtlpForm::Protobuf),
    }
}

/// The versions of remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteWrite {
    V1,
    V2,
}

/// Remote write: 204, or 400 with a text that counts and names what was left out; 2.0 states what was written.
fn remote_write(written: Result<IngestOutcome>, version: RemoteWrite) -> Response {
    let v2 = version == RemoteWrite::V2;
    let (mut response, counts) = match written.and_then(|w| w.judge(forbidden_records::error).map(|()| w)) {
        Err(e) if e.kind == ErrorKind::Forbidden => (error_response(&e, "/metrics-api/api/v1/write"), [0; 3]),
        Err(e) => (plain(status_of(e.kind), public_text(&e)), [0; 3]),
        Ok(w) => {
            // 1.0 has no way to name one bad series: it is skipped and counted (`metrics-api` section 5). A sender that
            // reads 400 drops the batch, so what it may not write is told in a header.
            let told = |r: Reason| !r.is_silent() && r != Reason::Service;
            let left_out = w.refusal_text(|r| told(r) && (v2 || !r.is_label_fault()));
            let status = if w.retryable() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::BAD_REQUEST };
            let response = left_out.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |text| plain(status, text));
            (response, [w.outcome.samples, w.outcome.histograms, w.outcome.exemplars])
        }
    };
    if v2 {
        for (what, count) in ["samples", "histograms", "exemplars"].into_iter().zip(counts) {
            let name = header::HeaderName::try_from(format!("x-prometheus-remote-write-{what}-written"));
            response.headers_mut().insert(name.expect("a valid name"), HeaderValue::from(count));
        }
    }
    with_retry_after(response)
}

/// OTLP: 200 with partial success when some points were refused, 400 when none could be taken, 429 when some can be later.
fn otlp(written: Result<IngestOutcome>, form: OtlpForm) -> Response {
    let answer = |status: StatusCode, body: Vec<u8>| {
        with_retry_after((status, [(header::CONTENT_TYPE, form.content_type())], body).into_response())
    };
    let later = written.as_ref().is_ok_and(IngestOutcome::retryable);
    match written.and_then(|w| export_outcome(&w)) {
        Ok((rejected, text)) => answer(StatusCode::OK, export_response(rejected, &text, form)),
        Err(e) => {
            let status = if later { StatusCode::TOO_MANY_REQUESTS } else { status_of(e.kind) };
            answer(status, form.status(&e))
        }
    }
}

/// What an OTLP sender is told, over HTTP as over gRPC: how many points were refused for good, and why.
///
/// # Errors
/// Forbidden: none is the caller's to write. Unavailable: some may be taken when sent again. Invalid: none was taken.
pub(crate) fn export_outcome(written: &IngestOutcome) -> Result<(u64, String)> {
    written.judge(forbidden_records::otlp_error)?;
    let (count, text) = (written.refused_count(), written.refusal_text(|r| !r.is_silent()).unwrap_or_default());
    if written.retryable() {
        return Err(Error::new(ErrorKind::Unavailable, text));
    }
    let nothing = written.outcome.samples + written.outcome.histograms == 0;
    if count > 0 && nothing { Err(Error::invalid(text)) } else { Ok((count, text)) }
}

/// Encodes an `ExportMetricsServiceResponse` (opentelemetry-proto `collector/metrics/v1`).
pub(crate) fn export_response(rejected: u64, text: &str, form: OtlpForm) -> Vec<u8> {
    let message = if rejected == 0 { String::new() } else { text.to_owned() };
    let partial = PartialSuccess { rejected, message };
    match form {
        OtlpForm::Protobuf => partial.to_protobuf(),
        OtlpForm::Json => partial.to_json().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use quiver_ingest::RejectedItems;

    use super::*;

    #[test]
    fn partial_success() {
        assert!(export_response(0, "", OtlpForm::Protobuf).is_empty());
        assert_eq!(export_response(0, "", OtlpForm::Json), b"{}");
        assert_eq!(export_response(3, "no", OtlpForm::Protobuf), [0x0a, 6, 0x08, 3, 0x12, 2, b'n', b'o']);
        let json = export_response(3, "no", OtlpForm::Json);
        assert_eq!(json, br#"{"partialSuccess":{"errorMessage":"no","rejectedDataPoints":"3"}}"#);
    }

    fn written(rejected: &[(Reason, u64)], refused: &[(Refusal, u64)], samples: u64) -> IngestOutcome {
        let rejected = rejected.iter().map(|(reason, count)| RejectedItems {
            reason: *reason,
            count: *count,
            example: "cart".to_owned(),
        });
        let decoded = DecodedMetrics { rejected: rejected.collect(), samples, ..DecodedMetrics::default() };
        IngestOutcome {
            decoded,
            outcome: WriteOutcome { samples, refused: refused.to_vec(), ..WriteOutcome::default() },
        }
    }

    #[test]
    fn what_remote_write_is_answered() {
        let check = |written: IngestOutcome, one: u16, two: u16| {
            let (decoded, outcome) = (written.decoded, written.outcome);
            let again = DecodedMetrics { rejected: decoded.rejected.clone(), ..DecodedMetrics::default() };
            let of_one = remote_write(Ok(IngestOutcome { decoded: again, outcome: outcome.clone() }), RemoteWrite::V1);
            let of_two = remote_write(Ok(IngestOutcome { decoded, outcome: outcome.clone() }), RemoteWrite::V2);
            assert_eq!((of_one.status().as_u16(), of_two.status().as_u16()), (one, two), "{outcome:?}");
        };
        check(written(&[], &[], 5), 204, 204);
        check(written(&[], &[], 0), 204, 204);
        // Labels at fault fail no request of 1.0, which cannot name a series.
        check(written(&[(Reason::NoMetricName, 1)], &[], 5), 204, 400);
        // Those that are beyond a limit do: nothing is wrong with them elsewhere.
        check(written(&[(Reason::LongLabel, 1)], &[], 5), 400, 400);
        check(written(&[(Reason::TooManyLabels, 1)], &[], 0), 400, 400);
        check(written(&[(Reason::InvalidHistogram, 1)], &[], 5), 400, 400);
        check(written(&[(Reason::InvalidExemplar, 1), (Reason::InvalidMetadata, 2)], &[], 5), 204, 204);
        check(written(&[], &[(Refusal::TooOld, 1)], 5), 400, 400);
        check(written(&[], &[(Refusal::ExemplarTime, 1)], 5), 204, 204);
        // What may be taken later asks to come back.
        check(written(&[], &[(Refusal::SeriesLimit, 1)], 5), 429, 429);
        check(written(&[], &[(Refusal::ServiceSeriesLimit, 1)], 5), 400, 400);
        check(written(&[], &[(Refusal::TooOld, 1), (Refusal::SeriesLimit, 1)], 0), 429, 429);
        // Series of others: all of them is a refusal, some of them are told in a header.
        check(written(&[(Reason::Service, 3)], &[], 0), 403, 403);
        check(written(&[(Reason::Service, 3)], &[], 5), 204, 204);
        check(written(&[(Reason::Service, 3), (Reason::BadSymbols, 1)], &[], 0), 400, 400);
    }

    #[test]
    fn remote_write_of_version_two_counts_what_was_written() {
        let counts = |response: &Response| {
            ["samples", "histograms", "exemplars"].map(|what| {
                let value = response.headers().get(format!("x-prometheus-remote-write-{what}-written"));
                value.map(|value| value.to_str().expect("a text").to_owned())
            })
        };
        let texts = |n: [u64; 3]| n.map(|n| Some(n.to_string()));
        let mut some = written(&[], &[(Refusal::TooOld, 1)], 7);
        (some.outcome.histograms, some.outcome.exemplars) = (2, 1);
        assert_eq!(counts(&remote_write(Ok(some), RemoteWrite::V2)), texts([7, 2, 1]));
        assert_eq!(counts(&remote_write(Ok(written(&[], &[], 7)), RemoteWrite::V1)), [None, None, None]);
        let failed = Error::new(ErrorKind::Unavailable, "busy");
        let response = remote_write(Err(failed), RemoteWrite::V2);
        assert_eq!((response.status().as_u16(), counts(&response)), (503, texts([0, 0, 0])));
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn what_otlp_is_told() {
        let check = |written: IngestOutcome, expected: Result<(u64, &str), (ErrorKind, &str)>| {
            let told = export_outcome(&written);
            let told = told.as_ref().map(|(n, text)| (*n, text.as_str())).map_err(|e| (e.kind, e.message.as_str()));
            assert_eq!(told.map_err(|(kind, _)| kind), expected.map_err(|(kind, _)| kind), "{written:?}");
            if let (Err((_, text)), Err((_, part))) = (told, expected) {
                assert!(text.contains(part), "{text}");
            }
        };
        check(written(&[], &[], 5), Ok((0, "")));
        check(written(&[], &[], 0), Ok((0, "")));
        check(written(&[], &[(Refusal::TooOld, 2)], 5), Ok((2, "2 refused: too old sample")));
        let two = "1 rejected: time is zero, first `cart`; 2 refused: too old sample";
        check(written(&[(Reason::ZeroTime, 1)], &[(Refusal::TooOld, 2)], 5), Ok((3, two)));
        check(written(&[], &[(Refusal::TooOld, 2)], 0), Err((ErrorKind::Invalid, "2 refused: too old sample")));
        check(written(&[], &[(Refusal::SeriesLimit, 2)], 5), Err((ErrorKind::Unavailable, "too many series")));
        // Exemplars and metadata fail no request, and are not counted.
        check(written(&[(Reason::InvalidExemplar, 9)], &[(Refusal::ExemplarTime, 9)], 0), Ok((0, "")));
        check(written(&[(Reason::Service, 3)], &[], 0), Err((ErrorKind::Forbidden, "ingest")));
        let some = written(&[(Reason::Service, 3)], &[], 5);
        assert_eq!(export_outcome(&some).map(|(count, _)| count).ok(), Some(3));
    }

    #[test]
    fn statuses_of_otlp() {
        for (kind, status) in [
            (ErrorKind::Invalid, 400),
            (ErrorKind::Unauthenticated, 401),
            (ErrorKind::Forbidden, 403),
            (ErrorKind::NotFound, 404),
        ] {
            for (form, media_type) in
                [(OtlpForm::Protobuf, "application/x-protobuf"), (OtlpForm::Json, "application/json")]
            {
                let response = otlp(Err(Error::new(kind, "why")), form);
                assert_eq!(response.status().as_u16(), status, "{kind:?}");
                assert_eq!(response.headers()[header::CONTENT_TYPE], media_type, "{kind:?}");
            }
        }
        let later = otlp(Ok(written(&[], &[(Refusal::SeriesLimit, 1)], 5)), OtlpForm::Json);
        assert_eq!(later.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(later.headers().contains_key(header::RETRY_AFTER));
        let partly = otlp(Ok(written(&[], &[(Refusal::TooOld, 1)], 5)), OtlpForm::Json);
        assert_eq!(partly.status(), StatusCode::OK);
    }

    #[test]
    fn long_texts_of_partial_success() {
        // A text of more than 127 bytes has a length of two.
        let long = "x".repeat(300);
        let whole = export_response(1, &long, OtlpForm::Protobuf);
        assert_eq!(whole[..6], [0x0a, 0xb1, 2, 0x08, 1, 0x12]);
        assert_eq!((whole[6], whole[7], whole.len()), (0xac, 2, 308));
    }
}
