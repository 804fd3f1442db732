//! Line formats, streamed: a body may be of any size, and memory is limited to a few batches.
//!
//! Pieces of the body are gathered, then decompressed and decoded on blocking threads, away from those that serve
//! sockets. While a write is under way the next batches are decoded.

mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, StatusCode, header};
use quiver_ingest::Encoding;
use quiver_ingest::content_encoding::Inflate;
use quiver_ingest::logs::{Journal, JsonLines, LogsContext, Report};
use quiver_store::Refusal;
use quiver_types::{Error, ErrorKind, LogsBatch, Result};
use tokio::task::JoinHandle;
use tracing::Instrument;
use xxhash_rust::xxh3::Xxh3;

use super::decoders::LineDecoder;
use super::idempotency::{Success, Whole, write_once};
use super::metrics::Endpoint;
use super::request::Intake;
use super::store::{count, judge, refuse, write_counted};
use crate::body_memory::Share;
use crate::error::plain_error;
use crate::metrics::phases::{Signal, Step};
use crate::request_context::RequestInfo;
use crate::state::AppState;
use work::{Turn, Work};

/// Pieces are decoded once this many bytes are gathered.
const GATHER_BYTES: usize = 512 * 1024;
/// More bytes than this are decoded on a blocking thread.
const INLINE_BYTES_MAX: usize = 32 * 1024;
/// Bytes that are decompressed and decoded at once; see [`buffer_bytes`].
const BUFFER_BYTES: usize = 64 * 1024;
/// Bytes that requests may add to the rows of so many.
const ADDED_BYTES_MAX: usize = 1 << 20;
/// Bytes of the shortest record: `{}` and the end of its line.
const RECORD_BYTES_MIN: usize = 3;
/// If a sender pauses for this long, the rows that it has sent so far are stored.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a broken body that are still read, so that the sender gets to see the response.
const DRAIN_BYTES_MAX: usize = 64 << 20;
/// Most bytes of rows that one turn of decoding makes: it ends with a full batch and at most one more row.
const TURN_BYTES_MAX: usize = 10 << 20;
/// Bytes of rows that one byte of a body may become: if it is not compressed, and if it is. What the request adds to
/// each row comes on top.
const GROWTH: [usize; 2] = [3, 64];
/// Bytes of rows that are held back while the request may still turn out to be broken; beyond that they are stored.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A body that was read to its end, or to an error.
pub(super) struct StreamedBody<D> {
    pub(super) decoder: D,
    pub(super) outcome: Result<()>,
    /// Counts of the request. With [`RowUse::Returned`] it also has all rows, of which none is stored yet; otherwise it
    /// has no batches left.
    pub(super) whole: Whole,
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
        let Whole { report, bytes, .. } = &streamed.whole;
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
    let mut driver = Driver {
        state: Arc::clone(state),
        work: Some(Box::new(work)),
        row_use: lines.rows,
        held: Vec::new(),
        held_bytes: 0,
        storing: None,
        storing_bytes: 0,
        rows: state.capacity.bodies.decoded_share(),
        growth,
        refused: Vec::new(),
        bytes: 0,
        share: state.capacity.bodies.share(),
        read: Duration::ZERO,
        decode: Duration::ZERO,
    };
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
    let whole = Whole { batches: driver.held, report, body_hash, bytes: driver.bytes };
    StreamedBody { decoder: work.decoder, outcome, whole, share: driver.share }
}

/// Bytes that are decoded before the next look whether a batch is full: with fields of the request (`extra_fields`) a
/// record of three bytes becomes a row of kilobytes.
fn buffer_bytes(added: usize) -> usize {
    let records = ADDED_BYTES_MAX / added.max(1);
    records.saturating_mul(RECORD_BYTES_MIN).clamp(RECORD_BYTES_MIN, BUFFER_BYTES)
}

/// Refused rows by reason.
type Refusals = Vec<(Refusal, u64)>;

struct Driver<D> {
    state: Arc<AppState>,
    work: Option<Box<Work<D>>>,
    row_use: RowUse,
    held: Vec<LogsBatch>,
    held_bytes: usize,
    storing: Option<JoinHandle<Result<Refusals>>>,
    storing_bytes: usize,
    /// Memory for decoded rows: those that a turn may make, and those being stored.
    rows: Share,
    /// How many bytes of rows a byte of the body may become; see [`GROWTH`].
    growth: usize,
    refused: Refusals,
    bytes: u64,
    /// Memory for bodies: pieces that are gathered, and rows that are held back.
    share: Share,
    /// Time spent waiting for the body, and time spent decoding.
    read: Duration,
    decode: Duration,
}

/// What came of a body since the last turn.
struct Gathered {
    pieces: Vec<Bytes>,
    bytes: usize,
    ended: bool,
    /// Whether rows are stored now, as their sender waits.
    paused: bool,
    broken: Option<Error>,
}

impl<D: LineDecoder> Driver<D> {
    async fn run(&mut self, body: Body) -> Result<()> {
        let mut chunks = body.into_data_stream();
        loop {
            let Gathered { pieces, bytes, ended, paused, mut broken } = self.gather(&mut chunks).await;
            let mut next = Some((pieces, bytes));
            while let Some((pieces, size)) = next.take() {
                if let Err(e) = self.make_room(size).await {
                    broken = Some(e);
                    break;
                }
                let turn = self.turn(pieces, ended, size).await;
                self.take(turn.batches).await?;
                if self.returns() && self.held_bytes > HELD_BYTES_MAX {
                    let most = format!("a request with `Idempotency-Key` may hold {HELD_BYTES_MAX} bytes of rows");
                    let text = format!("{most}; send them in several requests");
                    broken = Some(Error::new(ErrorKind::TooLarge, text));
                    break;
                }
                if let Err(e) = self.share.hold(self.kept_bytes()).await {
                    broken = Some(e);
                    break;
                }
                match turn.more {
                    Ok(true) => next = Some((Vec::new(), GATHER_BYTES)),
                    Ok(false) => {}
                    Err(e) => broken = Some(e),
                }
            }
            if let Some(broken) = broken {
                self.release_early().await?;
                self.forget();
                drain(&mut chunks).await;
                return Err(broken);
            }
            if ended {
                return self.release().await;
            }
            if paused {
                self.release_early().await?;
            }
            // Gives back the memory that turns reserved and did not need.
            let bytes = self.row_bytes();
            self.rows.try_hold(bytes);
        }
    }

    /// Gathers pieces until they are worth a turn, the body ends or breaks, or its sender pauses.
    async fn gather(&mut self, chunks: &mut BodyDataStream) -> Gathered {
        let began = Instant::now();
        let mut found = Gathered { pieces: Vec::new(), bytes: 0, ended: false, paused: false, broken: None };
        while found.bytes < GATHER_BYTES {
            match tokio::time::timeout(PAUSE, self.share.next(chunks)).await {
                Err(_) => {
                    found.paused = true;
                    break;
                }
                Ok(Ok(None)) => {
                    found.ended = true;
                    break;
                }
                Ok(Err(e)) => {
                    found.broken = Some(e);
                    break;
                }
                Ok(Ok(Some(chunk))) => {
                    found.bytes += chunk.len();
                    found.pieces.push(chunk);
                    if !self.share.try_hold(self.kept_bytes() + found.bytes) {
                        break;
                    }
                    // A sender that trickles bytes must not delay its rows longer than one that pauses.
                    if began.elapsed() >= PAUSE {
                        found.paused = true;
                        break;
                    }
                }
            }
        }
        self.bytes += found.bytes as u64;
        self.read += began.elapsed();
        found
    }

    /// Whether rows are held back until the body ends.
    fn keeps(&self) -> bool {
        self.returns() || D::HOLDS
    }

    /// Whether all rows are returned instead of stored.
    fn returns(&self) -> bool {
        self.row_use == RowUse::Returned
    }

    /// Bytes of rows in batches that are not full.
    fn open_bytes(&self) -> usize {
        self.work.as_deref().map_or(0, |work| work.decoder.open_bytes())
    }

    /// Bytes of memory that stay in use until the body ends.
    fn kept_bytes(&self) -> usize {
        let of_work = |work: &Work<D>| work.decoder.kept_bytes() + work.inflate.kept_bytes();
        let of_rows = if self.keeps() { self.held_bytes + self.open_bytes() } else { 0 };
        of_rows + self.work.as_deref().map_or(0, of_work)
    }

    /// Bytes of rows that are stored before the body ends, or are being stored.
    fn row_bytes(&self) -> usize {
        self.storing_bytes + if self.keeps() { 0 } else { self.held_bytes + self.open_bytes() }
    }

    /// Reserves memory for the rows that a turn may make of this many bytes.
    async fn make_room(&mut self, size: usize) -> Result<()> {
        let most = size.saturating_mul(self.growth).min(TURN_BYTES_MAX);
        if self.rows.try_hold(self.row_bytes() + most) {
            return Ok(());
        }
        // The rows being stored free their memory in a moment.
        self.await_write().await?;
        self.rows.hold(self.row_bytes() + most).await
    }

    /// Drops what is held back after an error.
    fn forget(&mut self) {
        (self.held, self.held_bytes, self.share) = (Vec::new(), 0, self.state.capacity.bodies.share());
        self.rows = self.state.capacity.bodies.decoded_share();
    }

    async fn turn(&mut self, pieces: Vec<Bytes>, ended: bool, size: usize) -> Turn {
        let mut work = self.work.take().expect("a turn gives the work back");
        let began = Instant::now();
        if size <= INLINE_BYTES_MAX {
            let turn = work.turn(pieces, ended);
            self.work = Some(work);
            self.decode += began.elapsed();
            return turn;
        }
        let joined = tokio::task::spawn_blocking(move || {
            let turn = work.turn(pieces, ended);
            (work, turn)
        });
        let (work, turn) = joined.await.expect("a fault of ours in a decoder ends its request");
        self.work = Some(work);
        self.decode += began.elapsed();
        turn
    }

    /// Takes decoded batches, and begins to store them unless they must be held back.
    async fn take(&mut self, batches: Vec<LogsBatch>) -> Result<()> {
        self.hold(batches);
        if !self.returns() && (!D::HOLDS || self.held_bytes > HELD_BYTES_MAX) { self.store().await } else { Ok(()) }
    }

    fn hold(&mut self, batches: Vec<LogsBatch>) {
        self.held_bytes += batches.iter().map(LogsBatch::memory_bytes).sum::<usize>();
        self.held.extend(batches);
    }

    /// Stores the rows that there are before the end of the body, also those in batches that are not full, unless the
    /// format is all-or-nothing.
    async fn release_early(&mut self) -> Result<()> {
        if self.keeps() {
            return Ok(());
        }
        let rest = self.work.as_mut().map(|w| w.decoder.take_all()).unwrap_or_default();
        self.hold(rest);
        self.release().await
    }

    /// Stores the rows held so far.
    async fn release(&mut self) -> Result<()> {
        if self.returns() {
            return Ok(());
        }
        self.store().await?;
        self.await_write().await
    }

    /// Begins to store the rows held so far, once the previous write is done.
    async fn store(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.await_write().await?;
        let (batches, state) = (std::mem::take(&mut self.held), Arc::clone(&self.state));
        (self.held_bytes, self.storing_bytes) = (0, self.held_bytes);
        self.storing = Some(tokio::spawn(RequestInfo::carry(async move { write_counted(&state, batches).await })));
        Ok(())
    }

    async fn await_write(&mut self) -> Result<()> {
        if let Some(storing) = self.storing.take() {
            let lost = |e| Error::internal("a write met a fault of ours; the log has it").with_source(e);
            let stored = storing.await;
            self.storing_bytes = 0;
            self.refused.extend(stored.map_err(lost)??);
        }
        Ok(())
    }
}

/// Reads and drops some of the rest of a body: most senders read the response only after they have sent everything.
async fn drain(chunks: &mut BodyDataStream) {
    let mut left = DRAIN_BYTES_MAX;
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(PAUSE, chunks.next()).await {
        if chunk.len() > left {
            break;
        }
        left -= chunk.len();
    }
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
    use quiver_ingest::content_encoding::pack;
    use quiver_ingest::logs::bulk::Bulk;
    use quiver_ingest::logs::{FieldOptions, LogsLimits};
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
