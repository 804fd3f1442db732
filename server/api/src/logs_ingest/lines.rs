//! Line formats, streamed: a body may be of any size, and memory is limited to a few batches.
//!
//! Pieces of the body are gathered, then decompressed and decoded on blocking threads, away from those that serve
//! sockets. While a write is under way the next batches are decoded.

mod driver;
mod work;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use quiver_ingest::Encoding;
use quiver_ingest::content_encoding::Inflate;
use quiver_ingest::logs::{Journal, JsonLines, LogsContext, Report};
use quiver_types::{Error, Result};
use tracing::Instrument;
use xxhash_rust::xxh3::Xxh3;

use super::decoders::LineDecoder;
use super::idempotency::{CompleteRequest, Success, write_once};
use super::metrics::Endpoint;
use super::request::Intake;
use super::store::{count, judge, refuse};
use crate::body_memory::Share;
use crate::error::plain_error;
use crate::metrics::phases::{Signal, Step};
use crate::request_context::RequestInfo;
use crate::state::AppState;
use driver::Driver;
use work::Work;

/// Bytes that are decompressed and decoded at once; see [`buffer_bytes`].
const BUFFER_BYTES: usize = 64 * 1024;
/// Bytes that requests may add to the rows of so many.
const ADDED_BYTES_MAX: usize = 1 << 20;
/// Bytes of the shortest record: `{}` and the end of its line.
const RECORD_BYTES_MIN: usize = 3;
/// Bytes of rows that one byte of a body may become: if it is not compressed, and if it is. What the request adds to
/// each row comes on top.
const GROWTH: [usize; 2] = [3, 64];

/// A body that was read to its end, or to an error.
pub(super) struct StreamedBody<D> {
    pub(super) decoder: D,
    pub(super) outcome: Result<()>,
    /// Counts of the request. With [`RowUse::Returned`] it also has all rows, of which none is stored yet; otherwise it
    /// has no batches left.
    pub(super) whole: CompleteRequest,
    /// Memory for what `decoder` and `whole` still hold.
    pub(super) share: Share,
}

/// A body of lines, and what becomes of its rows.
pub(super) struct LineBody {
    pub(super) body: Body,
    pub(super) encoding: Option<Encoding>,
    pub(super) rows: RowUse,
}

/// What becomes of the rows of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowUse {
    /// They are stored as they come, or, of a format that is all-or-nothing, at the end.
    Stored,
    /// None is stored: whoever asked gets all of them.
    Returned,
}

impl RowUse {
    /// Rows of a request with an `Idempotency-Key` are stored once the whole of it is known.
    pub(super) fn of<T>(key: Option<&T>) -> Self {
        if key.is_some() { Self::Returned } else { Self::Stored }
    }
}

/// Streams a body through a decoder into the store, and counts the request. Runs to the end even if the client
/// disconnects, so that what has arrived is stored.
pub(super) async fn stream<D: LineDecoder>(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    decoder: D,
    lines: LineBody,
) -> StreamedBody<D> {
    let state = Arc::clone(state);
    let running = async move {
        let is_returned = lines.rows == RowUse::Returned;
        let streamed = run(&state, decoder, lines).await;
        let CompleteRequest { report, bytes, .. } = &streamed.whole;
        let is_stored = !is_returned && (!D::HOLDS || streamed.outcome.is_ok());
        // A complete request that can be stored is counted by whoever stores it.
        if !is_returned || streamed.outcome.is_err() {
            let nothing = Report::default();
            count(&state, endpoint, *bytes, if is_stored { report } else { &nothing });
        }
        streamed
    };
    tokio::spawn(RequestInfo::carry(running).in_current_span())
        .await
        .expect("a fault of ours in a decoder ends its request")
}

async fn run<D: LineDecoder>(state: &Arc<AppState>, decoder: D, lines: LineBody) -> StreamedBody<D> {
    let encoding = lines.encoding.unwrap_or(Encoding::Identity);
    let added = decoder.added_bytes();
    let growth = GROWTH[usize::from(encoding != Encoding::Identity)] + added.div_ceil(RECORD_BYTES_MIN);
    let inflate = Inflate::new(encoding, state.settings.decode_limits.body_bytes_max);
    let hash = (lines.rows == RowUse::Returned).then(|| Box::new(Xxh3::new()));
    let buffer = vec![0; buffer_bytes(added)];
    let work = Work { decoder, inflate, room: state.capacity.bodies.share(), buffer, hash };
    let mut driver = Driver::new(Arc::clone(state), work, lines.rows, growth);
    let outcome = driver.run(lines.body).await;
    state.metrics.phases.step(Signal::Logs, Step::Read, driver.read);
    state.metrics.phases.step(Signal::Logs, Step::Decode, driver.decode);
    // Rows decoded before an error stay stored, unless the format is all-or-nothing.
    let settled = driver.await_write().await;
    let outcome = outcome.and(settled);
    let work = driver.work.expect("a turn gives the work back");
    let mut report = work.decoder.report().clone();
    refuse(&mut report, driver.refused);
    let body_hash = work.hash.map_or(0, |hash| hash.digest128());
    let whole = CompleteRequest { batches: driver.held, report, body_hash, bytes: driver.bytes };
    StreamedBody { decoder: work.decoder, outcome, whole, share: driver.share }
}

/// Bytes that are decoded before the next look whether a batch is full: with fields of the request (`extra_fields`) a
/// record of three bytes becomes a row of kilobytes.
fn buffer_bytes(added: usize) -> usize {
    let records = ADDED_BYTES_MAX / added.max(1);
    records.saturating_mul(RECORD_BYTES_MIN).clamp(RECORD_BYTES_MIN, BUFFER_BYTES)
}

/// Streams a body whose faulty records are dropped alone: 200 if at least one was good.
///
/// # Errors
/// Invalid: there were records, and none could be read. Those of the store.
async fn tolerant<D: LineDecoder>(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    request: Request,
    decoder: fn(&LogsContext) -> D,
    record: &'static str,
) -> Result<Response> {
    let (head, body) = request.into_parts();
    let answer = |report: &Report| {
        judge(report)?;
        if report.all_faulty() {
            return Err(Error::invalid(format!("no {record} could be read: {}", report.text())));
        }
        Ok(Success::new(StatusCode::OK, "application/json", ""))
    };
    let Intake { ctx, encoding, id, .. } = Intake::read(state, &head)?;
    let lines = LineBody { body, encoding, rows: RowUse::of(id.as_ref()) };
    let streamed = stream(state, endpoint, decoder(&ctx), lines).await;
    streamed.outcome?;
    match id {
        Some(id) => write_once(state, endpoint, id, streamed.whole, answer).await,
        None => Ok(answer(&streamed.whole.report)?.into_response()),
    }
}

/// JSON lines.
pub(super) async fn json_lines(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = tolerant(&state, Endpoint::JsonLines, request, JsonLines::new, "line").await;
    outcome.unwrap_or_else(|e| plain_error(&e, "/insert/jsonline"))
}

/// Entries of systemd's journal, as `systemd-journal-upload` sends them.
pub(super) async fn journal(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let outcome = tolerant(&state, Endpoint::Journal, request, Journal::new, "entry").await;
    let mut answer = outcome.unwrap_or_else(|e| plain_error(&e, "/insert/journald/upload"));
    // What the uploader may compress with, from its version 258 on.
    answer.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
    answer
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quiver_ingest::content_encoding::pack;
    use quiver_ingest::logs::bulk::Bulk;
    use quiver_ingest::logs::{FieldOptions, LogsLimits};
    use quiver_types::{ErrorKind, LogsBatch};
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;
    use crate::body_memory::BodyBudget;

    fn context() -> LogsContext {
        let options = FieldOptions::read(|_| None, |_| None, &Arc::from(["app".to_owned()])).expect("the usual ones");
        let now_ns = 1_750_000_000_000_000_000;
        LogsContext {
            options: Arc::new(options),
            limits: LogsLimits::default(),
            now_ns,
            future_max_ns: i64::MAX,
            sender: None,
        }
    }

    /// A row with its time and its fields in order.
    type Row = (i64, Vec<(String, String)>);

    /// Decodes a body that comes in pieces of this size. Returns rows, counts, and the hash if it is wanted.
    fn read(
        body: &[u8],
        encoding: Encoding,
        piece: usize,
        with_hash: bool,
    ) -> Result<(Vec<Row>, Report, Option<u128>)> {
        let budget = BodyBudget::new(8 << 20, 8 << 20);
        let mut work = Work {
            decoder: JsonLines::new(&context()),
            inflate: Inflate::new(encoding, 1 << 20),
            room: budget.share(),
            // A small odd size, so that lines and characters are cut.
            buffer: vec![0; 37],
            hash: with_hash.then(|| Box::new(Xxh3::new())),
        };
        let mut batches = Vec::new();
        let mut turns: Vec<(Vec<Bytes>, bool)> =
            body.chunks(piece).map(|piece| (vec![Bytes::copy_from_slice(piece)], false)).collect();
        turns.push((Vec::new(), true));
        for (pieces, ended) in turns {
            let mut turn = work.turn(pieces, ended);
            loop {
                batches.extend(turn.batches);
                if !turn.more? {
                    break;
                }
                turn = work.turn(Vec::new(), ended);
            }
        }
        let mut rows = Vec::new();
        for batch in &batches {
            for (i, time) in batch.time.iter().enumerate() {
                rows.push((*time, batch.row(i).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()));
            }
        }
        Ok((rows, LineDecoder::report(&work.decoder).clone(), work.hash.map(|hash| hash.digest128())))
    }

    const BODY: &str = concat!(
        "{\"_time\":\"2025-03-10T09:46:41Z\",\"_msg\":\"größe 1\",\"app\":\"a\"}\n",
        "no JSON\n",
        "\n",
        "{\"_time\":\"2025-03-10T09:46:42.5Z\",\"_msg\":\"two\\nlines\",\"app\":\"b\",\"n\":5}\r\n",
        "{\"_msg\":\"\u{1f600}\",\"app\":\"a\"}",
    );

    /// However a body is cut and compressed, its rows, counts and hash are the same.
    #[test]
    fn bodies_are_the_same_in_pieces() {
        let (rows, report, hash) = read(BODY.as_bytes(), Encoding::Identity, BODY.len(), true).expect("lines");
        assert_eq!((rows.len(), report.rows, report.dropped_count()), (3, 3, 1), "{report:?}");
        assert_eq!((rows[0].0, rows[1].0), (1_741_600_001_000_000_000, 1_741_600_002_500_000_000));
        assert_eq!(hash, Some(xxh3_128(BODY.as_bytes())));
        let packed = pack(BODY.as_bytes()).expect("it is packed");
        for piece in [1, 2, 3, 7, 64, 1000] {
            for (body, encoding) in [(BODY.as_bytes(), Encoding::Identity), (&packed[..], Encoding::Zstd)] {
                let found = read(body, encoding, piece, true).expect("lines");
                assert_eq!(found, (rows.clone(), report.clone(), hash), "{encoding:?} by {piece}");
            }
        }
        let (again, _, none) = read(BODY.as_bytes(), Encoding::Identity, 5, false).expect("lines");
        assert_eq!((again, none), (rows, None), "a body that names nothing is not hashed");
    }

    #[test]
    fn fields_of_the_request_make_pieces_small() {
        let checked = [(0, BUFFER_BYTES), (40, BUFFER_BYTES), (100, 31_455), (16 << 10, 192), (4 << 20, 3)];
        for (added, expected) in checked {
            assert_eq!(buffer_bytes(added), expected, "{added}");
        }
    }

    #[test]
    fn a_body_without_lines_is_one_of_no_rows() {
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd, Encoding::Snappy] {
            let (rows, report, hash) = read(b"", encoding, 1, true).expect("nothing");
            assert_eq!((rows.len(), report, hash), (0, Report::default(), Some(xxh3_128(b""))), "{encoding:?}");
        }
        let (rows, report, _) = read(b"\n\r\n\n", Encoding::Identity, 1, false).expect("empty lines");
        assert_eq!((rows.len(), report.rows, report.dropped_count()), (0, 0, 0));
    }

    /// A truncated or invalid encoding is an error; the lines before it may be stored.
    #[test]
    fn broken_bodies_are_told() {
        let packed = pack(BODY.repeat(50).as_bytes()).expect("it is packed");
        for piece in [1, 10, 10_000] {
            let cut = read(&packed[..packed.len() - 5], Encoding::Zstd, piece, false).expect_err("cut short");
            assert_eq!(cut.kind, ErrorKind::Invalid, "{piece}: {cut}");
            let other = read(BODY.as_bytes(), Encoding::Zstd, piece, false).expect_err("it is no zstd");
            assert_eq!(other.kind, ErrorKind::Invalid, "{piece}: {other}");
            assert_eq!(
                read(BODY.as_bytes(), Encoding::Gzip, piece, false).expect_err("no gzip").kind,
                ErrorKind::Invalid
            );
        }
    }

    #[test]
    fn lines_may_be_stored_before_the_end_and_requests_in_bulk_may_not() {
        let mut lines = JsonLines::new(&context());
        LineDecoder::feed(&mut lines, BODY.as_bytes()).expect("lines");
        assert!(LineDecoder::take_full(&mut lines).is_empty(), "no batch is full");
        assert_eq!(LineDecoder::take_all(&mut lines).iter().map(LogsBatch::len).sum::<usize>(), 2);
        LineDecoder::finish(&mut lines).expect("the last line has no end");
        assert_eq!(LineDecoder::take_all(&mut lines).iter().map(LogsBatch::len).sum::<usize>(), 1);
        assert_eq!(LineDecoder::kept_bytes(&lines), 0);
        let mut bulk = Bulk::new(&context());
        assert!(
            LineDecoder::feed(&mut bulk, b"no action\n{}\n").and_then(|()| LineDecoder::finish(&mut bulk)).is_err()
        );
    }
}
