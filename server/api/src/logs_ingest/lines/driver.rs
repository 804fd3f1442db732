//! Reads a body of lines in steps: gathers pieces, decodes them on a blocking thread, and stores the rows while the next
//! pieces are decoded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::StreamExt;
use quiver_store::Refusal;
use quiver_types::{Error, ErrorKind, LogsBatch, Result};
use tokio::task::JoinHandle;

use super::RowUse;
use super::work::{Turn, Work};
use crate::body_memory::Share;
use crate::logs_ingest::decoders::LineDecoder;
use crate::logs_ingest::store::write_counted;
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// Pieces are decoded once this many bytes are gathered.
const GATHER_BYTES: usize = 512 * 1024;
/// More bytes than this are decoded on a blocking thread.
const INLINE_BYTES_MAX: usize = 32 * 1024;
/// If a sender pauses for this long, the rows that it has sent so far are stored.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a broken body that are still read, so that the sender gets to see the response.
const DRAIN_BYTES_MAX: usize = 64 << 20;
/// Most bytes of rows that one turn of decoding makes: it ends with a full batch and at most one more row.
const TURN_BYTES_MAX: usize = 10 << 20;
/// Bytes of rows that are held back while the request may still turn out to be broken; beyond that they are stored.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Refused rows by reason.
type Refusals = Vec<(Refusal, u64)>;

/// Reads a body, has it decoded in turns, and stores its rows or holds them back.
pub(super) struct Driver<D> {
    state: Arc<AppState>,
    pub(super) work: Option<Box<Work<D>>>,
    row_use: RowUse,
    pub(super) held: Vec<LogsBatch>,
    held_bytes: usize,
    storing: Option<JoinHandle<Result<Refusals>>>,
    storing_bytes: usize,
    /// Memory for decoded rows: those that a turn may make, and those being stored.
    rows: Share,
    /// How many bytes of rows a byte of the body may become.
    growth: usize,
    pub(super) refused: Refusals,
    pub(super) bytes: u64,
    /// Memory for bodies: pieces that are gathered, and rows that are held back.
    pub(super) share: Share,
    /// Time spent waiting for the body, and time spent decoding.
    pub(super) read: Duration,
    pub(super) decode: Duration,
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
    /// Begins with nothing read.
    pub(super) fn new(state: Arc<AppState>, work: Work<D>, row_use: RowUse, growth: usize) -> Self {
        let (rows, share) = (state.capacity.bodies.decoded_share(), state.capacity.bodies.share());
        Self {
            state,
            work: Some(Box::new(work)),
            row_use,
            held: Vec::new(),
            held_bytes: 0,
            storing: None,
            storing_bytes: 0,
            rows,
            growth,
            refused: Vec::new(),
            bytes: 0,
            share,
            read: Duration::ZERO,
            decode: Duration::ZERO,
        }
    }

    /// Reads the body to its end, or to an error.
    ///
    /// # Errors
    /// Those of the sender, of decoding and of the store; rows before them are stored unless they are held back.
    pub(super) async fn run(&mut self, body: Body) -> Result<()> {
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

    /// Waits for the rows that are being stored.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn await_write(&mut self) -> Result<()> {
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
