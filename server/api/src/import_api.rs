//! Import of exposition text: read while it arrives and written in batches, so a body may have any length.
//!
//! The body passes from the connection through a short queue to a thread that decompresses, decodes and writes it; a
//! sender that is faster than the store has to wait. Bad lines are skipped and counted, and the response names the
//! first (`metrics-api` section 8).
//!
//! What gathers counts in the memory of decoded bodies. Where there is no room for more, it is written earlier, so no
//! import waits for others while it holds some.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use futures::StreamExt;
use http::{StatusCode, header};
use quiver_ingest::exposition::{ExpositionDecoder, ExpositionOptions};
use quiver_ingest::{DecodedMetrics, Encoding, Reason, content_encoding};
use quiver_store::{Refusal, WriteOutcome};
use quiver_types::text::EXACT_INTEGERS_MAX;
use quiver_types::{Domain, Error, ErrorKind, Result};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::body_memory::broken;
use crate::encode::prometheus::{Envelope, error_response, success};
use crate::error::plain;
use crate::forbidden_records;
use crate::handlers::boxed;
use crate::ingest_api::{metrics_sender, note_taken};
use crate::metrics::rejections::IMPORTED_TEXT;
use crate::params::{Params, invalid};
use crate::request_context::RequestInfo;
use crate::state::AppState;
use crate::usage::AcceptedRecords;

const ROUTE: &str = "/api/v1/import/prometheus";
/// Bytes that gather before they are written.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes for which memory is asked at once; the first of them are those that each request has.
const STEP_BYTES: usize = 256 << 10;
/// Pieces of the body that may wait for the decoder.
const QUEUE_LEN: usize = 8;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, post(boxed(import)))
}

async fn import(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let Ok(_place) = state.capacity.places.imports.try_acquire() else {
        return plain(StatusCode::TOO_MANY_REQUESTS, "too many imports at once, try again later");
    };
    match run(&state, request).await {
        Ok(done) => done.answer(),
        Err(e) => error_response(&e, ROUTE),
    }
}

async fn run(state: &Arc<AppState>, request: Request) -> Result<Done> {
    let (head, body) = request.into_parts();
    let text = |name: header::HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok());
    let params = Params::read(&head.method, &head.headers, head.uri.query(), b"")?;
    let options = ExpositionOptions {
        open_metrics: open_metrics(text(header::CONTENT_TYPE).unwrap_or_default())?,
        now_ms: state.clock.now_ms(),
        given_ms: timestamp_ms(&params)?,
        extra_labels: extra_labels(&params)?,
        sender: metrics_sender(state),
    };
    let encoding = Encoding::from_header(text(header::CONTENT_ENCODING))?;
    let (pieces, queue) = mpsc::channel(QUEUE_LEN);
    let (inner, handle) = (Arc::clone(state), Handle::current());
    let work = tokio::task::spawn_blocking(move || read(&inner, &handle, options, encoding, Pieces::new(queue)));
    let mut body = body.into_data_stream();
    let mut fault = None;
    loop {
        let piece = match body.next().await {
            Some(Ok(bytes)) => Some(bytes),
            None => None,
            // The reader sees that the end is missing.
            Some(Err(e)) => {
                fault = Some(broken(&e));
                break;
            }
        };
        let ended = piece.is_none();
        if pieces.send(piece).await.is_err() || ended {
            break;
        }
    }
    drop(pieces);
    let done =
        work.await.map_err(|e| Error::internal("the import met a fault of ours; the log has it").with_source(e))?;
    done.map_err(|e| fault.unwrap_or(e))
}

/// Says by the content type whether the text is `OpenMetrics`.
fn open_metrics(content_type: &str) -> Result<bool> {
    match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/openmetrics-text" => Ok(true),
        // The content types of clients that do not set one deliberately.
        "" | "text/plain" | "application/octet-stream" | "application/x-www-form-urlencoded" => Ok(false),
        other => {
            let text = format!("unsupported content type `{other}`; send text/plain or application/openmetrics-text");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
    }
}

/// The time of samples that come without one, as VictoriaMetrics takes it; `None`: that of the request.
fn timestamp_ms(params: &Params) -> Result<Option<i64>> {
    let Some(text) = params.get("timestamp") else { return Ok(None) };
    // No sample is older or younger than a number of milliseconds that a double holds.
    let given = text.parse::<i64>().ok().filter(|ms| ms.unsigned_abs() <= EXACT_INTEGERS_MAX);
    given.map(Some).ok_or_else(|| invalid("timestamp", "expected Unix milliseconds"))
}

fn extra_labels(params: &Params) -> Result<Vec<(String, String)>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for text in params.all("extra_label") {
        let (name, value) = text.split_once('=').ok_or_else(|| invalid("extra_label", "expected name=value"))?;
        if name.is_empty() || labels.iter().any(|(n, _)| n == name) {
            return Err(invalid("extra_label", &format!("empty or repeated label name {name:?}")));
        }
        labels.push((name.to_owned(), value.to_owned()));
    }
    Ok(labels)
}

/// What an import did so far.
#[derive(Debug, Default)]
struct Done {
    samples: u64,
    exemplars: u64,
    bad_lines: u64,
    first_bad: String,
    refused: Vec<(Refusal, u64)>,
    forbidden: u64,
    first_forbidden: Option<String>,
}

impl Done {
    fn add(&mut self, decoded: &DecodedMetrics, outcome: WriteOutcome) {
        self.forbidden += decoded.forbidden();
        if self.first_forbidden.is_none() {
            self.first_forbidden = decoded.first_forbidden().map(str::to_owned);
        }
        self.samples += outcome.samples;
        self.exemplars += outcome.exemplars;
        for bad in decoded.rejected.iter().filter(|r| r.reason == Reason::BadLine) {
            if self.bad_lines == 0 {
                self.first_bad.clone_from(&bad.example);
            }
            self.bad_lines += bad.count;
        }
        for (why, count) in outcome.refused.into_iter().filter(|(why, _)| *why != Refusal::ExemplarTime) {
            match self.refused.iter_mut().find(|(known, _)| *known == why) {
                Some((_, all)) => *all += count,
                None => self.refused.push((why, count)),
            }
        }
    }

    /// 200 that says what was taken and what was not; an error when nothing was, or more may be taken later.
    fn answer(self) -> Response {
        forbidden_records::note(self.forbidden);
        RequestInfo::note_records(self.samples + self.exemplars);
        let refused: u64 = self.refused.iter().map(|(_, count)| count).sum();
        note_taken(AcceptedRecords::untimed(self.samples + self.exemplars), self.bad_lines + refused, self.forbidden);
        let mut warnings = Vec::new();
        if self.forbidden > 0 {
            if self.samples == 0 && self.bad_lines == 0 && self.refused.is_empty() {
                return error_response(
                    &forbidden_records::error(Domain::Metrics, self.first_forbidden.as_deref()),
                    ROUTE,
                );
            }
            warnings.push(format!("{} samples refused: {}", self.forbidden, Reason::Service.message()));
        }
        if self.bad_lines > 0 {
            warnings.push(format!("{} bad lines skipped, first {}", self.bad_lines, self.first_bad));
        }
        warnings.extend(self.refused.iter().map(|(why, n)| format!("{n} samples refused: {}", why.text())));
        if self.refused.iter().any(|(why, _)| *why == Refusal::SeriesLimit) {
            return plain(StatusCode::TOO_MANY_REQUESTS, warnings.join("; "));
        }
        if self.samples == 0 && !warnings.is_empty() {
            return error_response(&Error::invalid(warnings.join("; ")), ROUTE);
        }
        let refused = self.forbidden + self.refused.iter().map(|(_, n)| n).sum::<u64>();
        let data = json!({
            "samples": self.samples,
            "exemplars": self.exemplars,
            "badLines": self.bad_lines,
            "refusedSamples": refused,
        });
        success(&Envelope { warnings, infos: vec![] }, data.to_string().as_bytes())
    }
}

/// Reads a body to its end and writes what it holds.
fn read(
    state: &AppState,
    handle: &Handle,
    options: ExpositionOptions,
    encoding: Encoding,
    pieces: Pieces,
) -> Result<Done> {
    let mut done = Done::default();
    let mut write = |mut decoded: DecodedMetrics| -> Result<()> {
        let batch = std::mem::take(&mut decoded.batch);
        let outcome = if batch.is_empty() {
            WriteOutcome::default()
        } else {
            handle.block_on(state.engines.store.write_metrics(batch))?
        };
        state.metrics.rejections.count(IMPORTED_TEXT, &decoded.rejected);
        done.add(&decoded, outcome);
        Ok(())
    };
    let mut decoder = ExpositionDecoder::new(options);
    let mut room = state.capacity.bodies.decoded_share();
    let mut body = content_encoding::reader(encoding, BufReader::with_capacity(64 << 10, pieces))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = body.read(&mut buffer).map_err(|e| unreadable(e, encoding))?;
        if n == 0 {
            break;
        }
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            if decoder.bytes() >= BATCH_BYTES || !room.try_hold(decoder.bytes() + STEP_BYTES) {
                write(decoder.take())?;
                handle.block_on(room.hold(decoder.bytes() + STEP_BYTES))?;
            }
            let read = decoder.feed_until(rest, decoder.bytes() + STEP_BYTES)?;
            rest = &rest[read..];
        }
    }
    write(decoder.finish()?)?;
    Ok(done)
}

/// The part before was written already; repeating it is safe.
fn unreadable(error: io::Error, encoding: Encoding) -> Error {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return Error::invalid("the body ended early");
    }
    content_encoding::fault(encoding, error).into()
}

/// The pieces of a body as a reader. Its end has to be said: a connection that breaks is no end.
#[derive(Debug)]
struct Pieces {
    queue: mpsc::Receiver<Option<Bytes>>,
    piece: Bytes,
    ended: bool,
}

impl Pieces {
    fn new(queue: mpsc::Receiver<Option<Bytes>>) -> Self {
        Self { queue, piece: Bytes::new(), ended: false }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.queue.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => self.ended = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let n = self.piece.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types() {
        assert_eq!(open_metrics("application/openmetrics-text; version=1.0.0; charset=utf-8").ok(), Some(true));
        assert_eq!(open_metrics("text/plain; version=0.0.4").ok(), Some(false));
        assert_eq!(open_metrics("").ok(), Some(false));
        assert_eq!(open_metrics("application/json").unwrap_err().kind, ErrorKind::Unsupported);
    }

    #[test]
    fn labels_of_the_request() {
        let read = |query: &str| {
            let params = Params::read(&http::Method::POST, &http::HeaderMap::new(), Some(query), b"").unwrap();
            extra_labels(&params)
        };
        let expected = vec![("a".to_owned(), "1=2".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(read("extra_label=a%3D1%3D2&extra_label=b=").unwrap(), expected);
        assert!(read("extra_label=a").is_err());
        assert!(read("extra_label=%3D1").is_err());
        assert!(read("extra_label=a=1&extra_label=a=2").is_err());
    }

    #[test]
    fn the_time_of_samples_without_one() {
        let read = |query: &str| {
            let params = Params::read(&http::Method::POST, &http::HeaderMap::new(), Some(query), b"").unwrap();
            timestamp_ms(&params)
        };
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("timestamp=1700000000000").unwrap(), Some(1_700_000_000_000));
        for bad in ["timestamp=now", "timestamp=1.5", "timestamp=99999999999999999"] {
            assert_eq!(read(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn a_broken_connection_is_no_end() {
        let (pieces, queue) = mpsc::channel(4);
        pieces.try_send(Some(Bytes::from_static(b"ab"))).unwrap();
        drop(pieces);
        let error = Pieces::new(queue).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    /// The pieces that were sent, read by so many bytes at a time.
    fn read_pieces(sent: &[Option<&'static [u8]>], step: usize) -> io::Result<Vec<u8>> {
        let (pieces, queue) = mpsc::channel(16);
        for piece in sent {
            pieces.try_send(piece.map(Bytes::from_static)).expect("room");
        }
        drop(pieces);
        let (mut reader, mut out, mut buffer) = (Pieces::new(queue), Vec::new(), vec![0; step]);
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                n => out.extend_from_slice(&buffer[..n]),
            }
        }
        // The end stays the end.
        assert_eq!(reader.read(&mut buffer)?, 0);
        Ok(out)
    }

    #[test]
    fn pieces_are_read_to_the_end_that_is_said() {
        let piece = |text: &'static str| Some(text.as_bytes());
        for step in [1, 2, 3, 100] {
            let all = [piece("ab"), piece(""), piece("c"), piece("defg"), None];
            assert_eq!(read_pieces(&all, step).expect("an end"), b"abcdefg", "{step}");
            assert_eq!(read_pieces(&[None], step).expect("an end"), b"");
            // What comes behind the end is none of it.
            assert_eq!(read_pieces(&[piece("a"), None, piece("b")], step).expect("an end"), b"a");
            let broken = read_pieces(&all[..4], step).expect_err("no end");
            assert_eq!(broken.kind(), io::ErrorKind::ConnectionAborted, "{step}");
        }
        let early = unreadable(io::ErrorKind::ConnectionAborted.into(), Encoding::Gzip);
        assert_eq!((early.kind, early.message.as_str()), (ErrorKind::Invalid, "the body ended early"));
        assert_eq!(unreadable(io::Error::other("x"), Encoding::Gzip).kind, ErrorKind::Invalid);
    }

    fn decoded(rejected: &[(Reason, u64, &str)]) -> DecodedMetrics {
        let rejected = rejected.iter().map(|(reason, count, example)| quiver_ingest::RejectedItems {
            reason: *reason,
            count: *count,
            example: (*example).to_owned(),
        });
        DecodedMetrics { rejected: rejected.collect(), ..DecodedMetrics::default() }
    }

    fn outcome(samples: u64, exemplars: u64, refused: &[(Refusal, u64)]) -> WriteOutcome {
        WriteOutcome { samples, exemplars, refused: refused.to_vec(), ..WriteOutcome::default() }
    }

    #[test]
    fn batches_add_up() {
        let mut done = Done::default();
        done.add(&decoded(&[(Reason::BadLine, 2, "line 3: x"), (Reason::Service, 1, "cart")]), outcome(5, 1, &[]));
        let refused = [(Refusal::TooOld, 2), (Refusal::ExemplarTime, 9), (Refusal::SeriesLimit, 1)];
        done.add(&decoded(&[(Reason::BadLine, 1, "line 9: y"), (Reason::NoValue, 7, "")]), outcome(3, 0, &refused));
        done.add(&decoded(&[(Reason::Service, 4, "pay")]), outcome(0, 2, &[(Refusal::TooOld, 3)]));
        assert_eq!((done.samples, done.exemplars, done.bad_lines, done.forbidden), (8, 3, 3, 5));
        assert_eq!((done.first_bad.as_str(), done.first_forbidden.as_deref()), ("line 3: x", Some("cart")));
        // Each reason once; exemplars that come too late fail nothing.
        assert_eq!(done.refused, [(Refusal::TooOld, 5), (Refusal::SeriesLimit, 1)]);
    }

    async fn answered(done: Done) -> (u16, serde_json::Value) {
        use http_body_util::BodyExt as _;

        let response = done.answer();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).trim_end().into()))
    }

    #[tokio::test]
    async fn what_was_taken_and_what_was_not() {
        let whole = |samples: u64, bad_lines: u64, refused: u64| json!({"samples": samples, "exemplars": 0, "badLines": bad_lines, "refusedSamples": refused});
        assert_eq!(answered(Done::default()).await, (200, json!({"status": "success", "data": whole(0, 0, 0)})));
        let good = Done { samples: 5, ..Done::default() };
        assert_eq!(answered(good).await, (200, json!({"status": "success", "data": whole(5, 0, 0)})));
        let some = || Done {
            samples: 5,
            bad_lines: 2,
            first_bad: "line 3: x".to_owned(),
            refused: vec![(Refusal::TooOld, 4)],
            forbidden: 1,
            ..Done::default()
        };
        let warnings = [
            "1 samples refused: no right to write this service",
            "2 bad lines skipped, first line 3: x",
            "4 samples refused: too old sample",
        ];
        let (status, body) = answered(some()).await;
        assert_eq!((status, &body["data"], &body["warnings"]), (200, &whole(5, 2, 5), &json!(warnings)));
        // Nothing was taken: an error that says why.
        let (status, body) = answered(Done { samples: 0, ..some() }).await;
        assert_eq!(
            (status, &body["errorType"], &body["error"]),
            (400, &json!("bad_data"), &json!(warnings.join("; ")))
        );
        // More may be taken later.
        let later = Done { refused: vec![(Refusal::SeriesLimit, 1)], samples: 5, ..Done::default() };
        assert_eq!(answered(later).await, (429, json!("1 samples refused: too many series")));
        // None of it is the sender's to write.
        let others = Done { forbidden: 3, first_forbidden: Some("cart".to_owned()), ..Done::default() };
        let (status, body) = answered(others).await;
        assert_eq!((status, &body["code"]), (403, &json!("FORBIDDEN")));
        assert_eq!(body["error"], "this needs the right {ingest, metrics, cart}");
    }
}
