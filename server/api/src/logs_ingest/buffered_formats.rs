//! Formats whose bodies are read as a whole: push, the SaaS intake, Splunk's events, OTLP. The whole body is decoded
//! before any of it is stored.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use quiver_ingest::logs::saas::UrlFields;
use quiver_ingest::logs::{
    DecodedLogs, Report, events as event_logs, otlp as otlp_logs, push as push_logs, saas as saas_logs,
};
use quiver_ingest::{DecodeRoom, Encoding, otlp::response, within};
use quiver_types::{Domain, Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_128;

use super::idempotency::{CompleteRequest, Success, write_once};
use super::metrics::Endpoint;
use super::request::{Intake, ours, text};
use super::store::{count, judge, write};
use crate::body_memory::read_body;
use crate::encode::json::json_response;
use crate::error::{log, plain_error, public_text, status_of, with_retry_after};
use crate::forbidden_records;
use crate::metrics::phases::{Signal, Step};
use crate::otlp_form::OtlpForm;
use crate::state::AppState;

/// Larger bodies are decoded on a blocking thread, so that they do not hold up the threads that serve sockets.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Header with the time of records that have none, in Unix milliseconds.
const MESSAGE_TIME: &str = "dd-message-timestamp";

/// Reads Unix milliseconds; gives nanoseconds. What cannot be read, and 0, is no time.
fn millis(text: &str) -> Option<i64> {
    text.trim().parse::<i64>().ok().filter(|ms| *ms > 0)?.checked_mul(1_000_000)
}

/// Whether a body is decoded on a thread of its own.
pub(super) fn has_own_thread(body: &[u8]) -> bool {
    body.len() > INLINE_BYTES_MAX
}

/// Runs a decoder, on a blocking thread if the body is large, and stores the rows.
///
/// # Errors
/// Those of the decoder and of the store.
pub(super) async fn decode_and_write(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    body: Bytes,
    decode: impl FnOnce(&[u8]) -> Result<DecodedLogs> + Send + 'static,
) -> Result<Report> {
    let bytes = body.len() as u64;
    // Held until the rows are stored.
    let room = state.capacity.bodies.decoding_on(has_own_thread(&body));
    let DecodedLogs { batches, mut report } = decode_body(state, endpoint, &room, body, Box::new(decode)).await?;
    write(state, batches, &mut report).await?;
    count(state, endpoint, bytes, &report);
    Ok(report)
}

/// Boxed, so that tasks are compiled once for all formats.
type BodyDecoder<T> = Box<dyn FnOnce(&[u8]) -> Result<T> + Send>;

async fn decode_body<T: Send + 'static>(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    room: &Arc<dyn DecodeRoom>,
    body: Bytes,
    decode: BodyDecoder<T>,
) -> Result<T> {
    let room = Arc::clone(room);
    let (bytes, began) = (body.len() as u64, Instant::now());
    let decoded = if has_own_thread(&body) {
        let decoded = tokio::task::spawn_blocking(move || within(room, || decode(&body))).await;
        decoded.map_err(|e| Error::internal("the decoder met a fault of ours; the log has it").with_source(e))?
    } else {
        within(room, || decode(&body))
    };
    state.metrics.phases.step(Signal::Logs, Step::Decode, began.elapsed());
    decoded.inspect_err(|_| count(state, endpoint, bytes, &Report::default()))
}

/// Decompresses and decodes a body, stores its rows and answers; with an `Idempotency-Key`, only once.
///
/// # Errors
/// Those of the decoder, of the store, and of `answer`.
async fn take(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    mut intake: Intake,
    body: Bytes,
    decode: impl FnOnce(&[u8], &Intake) -> Result<DecodedLogs> + Send + 'static,
    answer: impl FnOnce(&Report) -> Result<Success>,
) -> Result<Response> {
    let (bytes, id) = (body.len() as u64, intake.id.take());
    let (bytes_max, with_hash) = (state.settings.decode_limits.body_bytes_max, id.is_some());
    let mut beside = state.capacity.bodies.share_beside(has_own_thread(&body));
    let decode = move |body: &[u8]| {
        let body = intake.decompress(body, bytes_max, &mut |bytes| beside.hold(bytes))?;
        let body_hash = if with_hash { xxh3_128(&body) } else { 0 };
        Ok((decode(&body, &intake)?, body_hash))
    };
    let Some(id) = id else {
        let decode = |body: &[u8]| decode(body).map(|(decoded, _)| decoded);
        let report = decode_and_write(state, endpoint, body, decode).await?;
        return Ok(answer(&report)?.into_response());
    };
    let room = state.capacity.bodies.decoding_on(has_own_thread(&body));
    let (DecodedLogs { batches, report }, body_hash) =
        decode_body(state, endpoint, &room, body, Box::new(decode)).await?;
    write_once(state, endpoint, id, CompleteRequest { batches, report, body_hash, bytes }, answer).await
}

async fn body_of(state: &AppState, head: &Parts, body: axum::body::Body) -> Result<Bytes> {
    let body = read_body(&state.capacity.bodies, &head.headers, body, state.settings.body_bytes_max);
    state.metrics.phases.timed(Signal::Logs, Step::Read, body).await
}

fn media(head: &Parts) -> String {
    let header = text(&head.headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Push of a log aggregator: 204, or 400 if the body has another shape.
pub(super) async fn push(State(state): State<Arc<AppState>>, request: Request) -> Response {
    const ROUTE: &str = "/insert/aggregator/api/v1/push";
    let (head, body) = request.into_parts();
    let outcome = async {
        let mut intake = Intake::read(&state, &head)?;
        let is_json = media(&head) == "application/json";
        let body = body_of(&state, &head, body).await?;
        if !is_json {
            // Protobuf is compressed whether a header says so or not.
            intake.encoding.get_or_insert(Encoding::Snappy);
        }
        let decode = move |body: &[u8], intake: &Intake| {
            let decode = if is_json { push_logs::decode_json } else { push_logs::decode_protobuf };
            decode(body, &intake.ctx).map_err(ours)
        };
        let answer = |report: &Report| {
            judge(report)?;
            Ok(Success::new(StatusCode::NO_CONTENT, "", ""))
        };
        let is_text = !is_json && body.first() == Some(&b'{');
        take(&state, Endpoint::Push, intake, body, decode, answer).await.map_err(|mut e| {
            // `curl -d` sends text as a form, which is not valid snappy.
            if is_text && e.kind == ErrorKind::Invalid {
                e.message.push_str("; JSON is sent with `Content-Type: application/json`");
            }
            e
        })
    };
    outcome.await.unwrap_or_else(|e| plain_error(&e, ROUTE))
}

/// The SaaS intake: 202 and `{}`.
pub(super) async fn saas(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let outcome = async {
        let intake = Intake::read(&state, &head)?;
        let given = |name: &'static str| intake.param(name).map(|value| (name, value.to_owned()));
        let url = UrlFields {
            ddtags: intake.param("ddtags").map(str::to_owned),
            fields: ["ddsource", "hostname", "service"].into_iter().filter_map(given).collect(),
            time_ns: text(&head.headers, MESSAGE_TIME).and_then(millis),
        };
        let body = body_of(&state, &head, body).await?;
        let decode = move |body: &[u8], intake: &Intake| saas_logs::decode(body, &url, &intake.ctx).map_err(ours);
        let answer = |report: &Report| {
            judge(report)?;
            if report.all_faulty() {
                return Err(Error::invalid(format!("no record could be read: {}", report.text())));
            }
            Ok(Success::new(StatusCode::ACCEPTED, "application/json", "{}"))
        };
        take(&state, Endpoint::Saas, intake, body, decode, answer).await
    };
    let error = match outcome.await {
        Ok(response) => return response,
        Err(e) => e,
    };
    if error.kind == ErrorKind::Forbidden {
        return plain_error(&error, "/insert/saas/api/v2/logs");
    }
    log(&error, "/insert/saas/api/v2/logs");
    let status = status_of(error.kind);
    let body = serde_json::json!({"errors": [
        {"status": status.as_str(), "title": status.canonical_reason(), "detail": public_text(&error)},
    ]});
    with_retry_after(json_response(status, body.to_string()))
}

/// Events of Splunk's collector: 200 with its words.
pub(super) async fn events(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let decode = |body: &[u8], intake: &Intake| event_logs::decode(body, &intake.ctx).map_err(ours);
    collected(&state, request, "/insert/splunk/services/collector/event", decode).await
}

/// Lines for Splunk's collector, of which each is an event.
pub(super) async fn event_lines(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let decode = |body: &[u8], intake: &Intake| {
        let given = |name: &str| Some((name.to_owned(), intake.param(name)?.to_owned()));
        let fields = event_logs::LINE_FIELDS.into_iter().filter_map(given);
        event_logs::decode_lines(body, fields, &intake.ctx).map_err(ours)
    };
    collected(&state, request, "/insert/splunk/services/collector/raw", decode).await
}

async fn collected(
    state: &Arc<AppState>,
    request: Request,
    route: &'static str,
    decode: fn(&[u8], &Intake) -> Result<DecodedLogs>,
) -> Response {
    let (head, body) = request.into_parts();
    let outcome = async {
        let intake = Intake::read(state, &head)?;
        let body = body_of(state, &head, body).await?;
        let answer = |report: &Report| {
            judge(report)?;
            if report.all_faulty() {
                return Err(Error::invalid(format!("no event could be read: {}", report.text())));
            }
            Ok(Success::new(StatusCode::OK, "application/json", r#"{"text":"Success","code":0}"#))
        };
        take(state, Endpoint::Events, intake, body, decode, answer).await
    };
    let error = match outcome.await {
        Ok(response) => return response,
        Err(e) => e,
    };
    if error.kind == ErrorKind::Forbidden {
        return plain_error(&error, route);
    }
    log(&error, route);
    let body = serde_json::json!({"text": public_text(&error), "code": collector_code(error.kind)});
    with_retry_after(json_response(status_of(error.kind), body.to_string()))
}

/// The collector's number of an error: busy, a fault of its own, or invalid data.
fn collector_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::LimitExceeded => 9,
        ErrorKind::Damaged | ErrorKind::Internal => 8,
        _ => 6,
    }
}

/// OTLP over HTTP, both encodings.
pub(super) async fn otlp(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let bytes_max = state.settings.decode_limits.body_bytes_max;
    let media = media(&head);
    let is_json = media == "application/json";
    let form = if is_json { OtlpForm::Json } else { OtlpForm::Protobuf };
    if !matches!(&*media, "" | "application/json" | "application/x-protobuf" | "application/protobuf") {
        let shown: String = media.chars().take(100).collect();
        let text = format!("unsupported content type `{shown}`; send application/x-protobuf or application/json");
        // Whoever sends something else is not known to read protobuf.
        return plain_error(&Error::new(ErrorKind::Unsupported, text), "otlp/logs");
    }
    let outcome = async {
        let intake = Intake::read(&state, &head)?;
        let body = body_of(&state, &head, body).await?;
        let decode = move |body: &[u8], intake: &Intake| {
            let decoded = if is_json {
                otlp_logs::decode_json(body, bytes_max, &intake.ctx)
            } else {
                otlp_logs::decode(body, &intake.ctx)
            };
            decoded.map_err(ours)
        };
        let answer = |report: &Report| {
            judge_otlp(report)?;
            Ok(Success::new(StatusCode::OK, form.content_type(), export_response(report, form)))
        };
        take(&state, Endpoint::Otlp, intake, body, decode, answer).await
    };
    match outcome.await {
        Ok(response) => response,
        Err(e) => {
            log(&e, "otlp/logs");
            let kind = [(header::CONTENT_TYPE, form.content_type())];
            with_retry_after((status_of(e.kind), kind, form.status(&e)).into_response())
        }
    }
}

/// Counts the records that the caller may not write. If that was all of them, the error is in the form of OTLP.
pub(super) fn judge_otlp(report: &Report) -> Result<()> {
    judge(report).map_err(|_| forbidden_records::otlp_error(Domain::Logs, report.first_forbidden.as_deref()))
}

/// Encodes an `ExportLogsServiceResponse`.
pub(super) fn export_response(report: &Report, form: OtlpForm) -> Vec<u8> {
    let (rejected, text) = (report.dropped_count(), report.text());
    if form == OtlpForm::Json {
        let partial = if rejected == 0 {
            serde_json::json!({})
        } else {
            serde_json::json!({"rejectedLogRecords": rejected.to_string(), "errorMessage": text})
        };
        return serde_json::json!({"partialSuccess": partial}).to_string().into_bytes();
    }
    response::PartialSuccess { rejected, message: text }.to_protobuf()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use quiver_ingest::logs::DropReason;
    use serde_json::Value;

    use super::*;

    #[test]
    fn media_types_stand_before_their_parameters() {
        for (value, expected) in [
            ("", ""),
            ("application/json", "application/json"),
            ("Application/JSON; charset=utf-8", "application/json"),
            (" application/x-protobuf ;a=b", "application/x-protobuf"),
            (";", ""),
        ] {
            let (mut head, ()) = http::Request::new(()).into_parts();
            assert_eq!(media(&head), "", "a request that says nothing");
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(media(&head), expected, "`{value}`");
        }
    }

    #[test]
    fn errors_have_the_numbers_of_the_collector() {
        for (kind, code) in [(ErrorKind::Invalid, 6), (ErrorKind::Unavailable, 9), (ErrorKind::Internal, 8)] {
            assert_eq!(collector_code(kind), code, "{kind:?}");
        }
    }

    #[test]
    fn times_of_messages_are_milliseconds() {
        for (text, expected) in [
            ("1741600001123", Some(1_741_600_001_123_000_000)),
            (" 1 ", Some(1_000_000)),
            ("0", None),
            ("-5", None),
            ("", None),
            ("now", None),
            ("9223372036854775807", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

    #[test]
    fn answers_of_otlp_tell_what_was_not_taken() {
        let told = |report: &Report| serde_json::from_slice::<Value>(&export_response(report, OtlpForm::Json)).unwrap();
        let mut report = Report::default();
        assert_eq!(told(&report), serde_json::json!({"partialSuccess": {}}));
        assert!(export_response(&report, OtlpForm::Protobuf).is_empty());
        report.drop_rows(DropReason::TooOld, 2);
        let text = report.text();
        let partial = serde_json::json!({"rejectedLogRecords": "2", "errorMessage": text});
        assert_eq!(told(&report)["partialSuccess"], partial);
        // In protobuf: field 1 of the answer holds the number as field 1 and the text as field 2.
        let mut expected = vec![0x0a, text.len() as u8 + 4, 0x08, 2, 0x12, text.len() as u8];
        expected.extend_from_slice(text.as_bytes());
        assert_eq!(export_response(&report, OtlpForm::Protobuf), expected);
    }
}
