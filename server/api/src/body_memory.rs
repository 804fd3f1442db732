//! Memory of request bodies: what has been read of all requests and is not yet decoded stays within one budget.
//!
//! A body is charged as it arrives and not by its stated length, since a mere announcement takes no memory. If nothing
//! is left it waits for a moment, then is refused with 503 and `Retry-After`. The first bytes of each body come from a
//! separate budget, so that large bodies of slow senders do not block small requests. A slow sender must give memory
//! back (408) if others wait for it.
//!
//! Large bodies take turns (`large_body_queue`), or each would get a piece and none all that it needs.
//!
//! Decoded bodies have a second budget of the same kind, held until they are stored, since a few bytes can expand to
//! many. Request heads have a third, held from the first byte of a head until its request is answered.
//!
//! While the process is short of memory, bodies and what they are decoded to wait from a fourth of a budget on: what a flush
//! needs to give memory back is in none.

mod decode_room;
mod large_body_queue;
mod reading;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use axum::body::{BodyDataStream, Bytes};
use futures::StreamExt;
use quiver_ingest::DecodeRoom;
use quiver_types::{Error, ErrorKind, MemoryPressure, Result};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::response_pressure::{ContendedResource, Demand};
use crate::serve::minimum_rate::Pace;
use decode_room::DecodeShare;
pub(crate) use large_body_queue::on_connection;
use large_body_queue::{LargeBodyQueue, TURN_WAIT, Turn};
use reading::Length;
pub(crate) use reading::{broken, read_body, read_unpacked, unpacked};

/// What is counted in one.
const UNIT: usize = 1024;
/// Bytes of a body that come out of the budget of small ones.
const SMALL_BYTES: usize = 64 * 1024;
/// The same of what a body is decoded to.
const SMALL_BATCH_BYTES: usize = 256 * 1024;
/// How long a body waits for others to be done.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes of a head that come out of the budget of small ones: most heads have no more.
const SMALL_HEAD_BYTES: usize = 4 * 1024;
/// Units that heads have at least, however little memory there is.
const HEAD_UNITS_MIN: usize = 4 * 1024;
/// A sender that holds more than its small share is slow below so many bytes per second, for so long.
const SLOW: (u64, Duration) = (64 * 1024, Duration::from_secs(2));
/// The part (1/n) of a budget that there is while the process is short of memory.
const FREE_PART: usize = 4;
/// How often who waits for the process looks whether it still is.
const SHORT_STEP: Duration = Duration::from_millis(10);
/// Most threads that wait for memory at once. All work that may block shares the threads, also that which holds the memory.
const THREADS_MAX: usize = 64;

/// The bytes of all bodies, or of all heads.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    /// Bytes of each that come out of `small`.
    small_bytes: usize,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// Units of `large`.
    largest: usize,
    /// How many bodies wait for room in `large`, or for their turn.
    waiting: Arc<watch::Sender<usize>>,
    /// Notified when memory is given back.
    given_back: Arc<Notify>,
    /// For bodies that want much of `large`.
    turns: LargeBodyQueue,
    /// For threads that wait for room.
    threads: Arc<Semaphore>,
    /// How many hold some of `large`, and how many of those have a thread that waits for more.
    holders: Arc<AtomicUsize>,
    stuck: Arc<AtomicUsize>,
    /// For what bodies are decoded to; none: that comes out of this one.
    decoded: Option<Arc<Self>>,
    /// Those who found no room to decode something.
    refused: Arc<Demand>,
    /// Whether the process is short of memory.
    pressure: Arc<MemoryPressure>,
}

/// One of those that wait.
struct WaitingRequest<'a>(&'a watch::Sender<usize>);

impl<'a> WaitingRequest<'a> {
    fn begin(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|n| *n += 1);
        Self(waiting)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

/// Something that is counted until it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Begins to count it; gives also how many there are with it.
    fn begin(count: &Arc<AtomicUsize>) -> (Self, usize) {
        let before = count.fetch_add(1, SeqCst);
        (Self(Arc::clone(count)), before + 1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl BodyBudget {
    /// Makes a budget of so many bytes, but at least of one body of `body_bytes_max`; small bodies get a quarter more.
    pub fn new(bytes: usize, body_bytes_max: usize) -> Self {
        let largest = bytes.max(body_bytes_max).div_ceil(UNIT).min(Semaphore::MAX_PERMITS / 2);
        let small = (largest / 4).max(SMALL_BYTES / UNIT);
        let most = (2 * bytes).max(body_bytes_max).div_ceil(UNIT).min(Semaphore::MAX_PERMITS / 2);
        // Each request has a batch, most of them a small one.
        let decoded = Self::of(SMALL_BATCH_BYTES, (most / 2).max(SMALL_BATCH_BYTES / UNIT), most);
        Self { decoded: Some(Arc::new(decoded)), ..Self::of(SMALL_BYTES, small, largest) }
    }

    /// The same in a process whose memory is watched.
    #[must_use]
    pub fn under(self, pressure: &Arc<MemoryPressure>) -> Self {
        let decoded = self.decoded.map(|decoded| {
            let decoded = Self::clone(&decoded);
            Arc::new(Self { pressure: Arc::clone(pressure), ..decoded })
        });
        Self { decoded, pressure: Arc::clone(pressure), ..self }
    }

    /// Makes a budget of so many bytes for heads: half of it for the first bytes of each, so that large heads that nobody
    /// ends leave room for those of everybody else.
    pub fn of_heads(bytes: usize) -> Self {
        let half = (bytes / UNIT).clamp(HEAD_UNITS_MIN, Semaphore::MAX_PERMITS / 2) / 2;
        Self::of(SMALL_HEAD_BYTES, half, half)
    }

    /// Makes a budget of so many bytes for what connections of HTTP/2 have sent, but at least of one window.
    pub fn of_windows(bytes: usize, window_bytes: usize) -> Self {
        Self::of(0, 0, bytes.max(window_bytes).div_ceil(UNIT).min(Semaphore::MAX_PERMITS / 2))
    }

    fn of(small_bytes: usize, small: usize, largest: usize) -> Self {
        Self {
            small_bytes,
            small: Arc::new(Semaphore::new(small)),
            large: Arc::new(Semaphore::new(largest)),
            largest,
            waiting: Arc::new(watch::Sender::new(0)),
            given_back: Arc::default(),
            turns: LargeBodyQueue::new(largest),
            threads: Arc::new(Semaphore::new(THREADS_MAX)),
            holders: Arc::default(),
            stuck: Arc::default(),
            decoded: None,
            refused: Arc::default(),
            pressure: Arc::default(),
        }
    }

    /// Whether so many units more of `large` have to wait until the process is no longer short of memory.
    fn is_short_of(&self, more: usize) -> bool {
        let held = || self.largest.saturating_sub(self.large.available_permits());
        more > 0 && self.pressure.is_short() && held() + more > self.largest / FREE_PART
    }

    /// Begins to decode a body; what it takes is given back when the room is dropped.
    pub(crate) fn decoding(&self) -> Arc<dyn DecodeRoom> {
        self.decoding_on(false)
    }

    /// Likewise, for a decoder that waits for others if it has a thread of its own.
    pub(crate) fn decoding_on(&self, own_thread: bool) -> Arc<dyn DecodeRoom> {
        DecodeShare::new(self.decoded_share(), own_thread).into_decode_room()
    }

    /// Begins with nothing for the unpacked form of a body, which stands beside it.
    pub(crate) fn share_beside(&self, own_thread: bool) -> DecodeShare {
        DecodeShare::new(self.share(), own_thread)
    }

    /// Tells whether others need that memory, for responses that hold some.
    pub(crate) fn decoding_needed(&self) -> Arc<dyn ContendedResource> {
        Arc::clone(&self.decoded.as_deref().unwrap_or(self).refused) as _
    }

    /// Begins with nothing of the same memory, for callers that can wait.
    pub(crate) fn decoded_share(&self) -> Share {
        self.decoded.as_deref().unwrap_or(self).share()
    }

    /// Begins with nothing.
    pub(crate) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            small: None,
            large: None,
            pace: Pace::new(SLOW.0, SLOW.1),
            since: None,
            turn: Turn::NotYet,
            holder: None,
        }
    }
}

/// What one request holds of the budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: BodyBudget,
    small: Option<OwnedSemaphorePermit>,
    large: Option<OwnedSemaphorePermit>,
    pace: Pace,
    /// Since when the sender is waited for.
    since: Option<Instant>,
    turn: Turn,
    /// While it holds some of what is for large ones.
    holder: Option<Counted>,
}

impl Drop for Share {
    fn drop(&mut self) {
        // Released first: whoever is notified checks for room at once.
        drop((self.small.take(), self.large.take()));
        self.budget.given_back.notify_waiters();
    }
}

fn held(permit: Option<&OwnedSemaphorePermit>) -> usize {
    permit.map_or(0, OwnedSemaphorePermit::num_permits)
}

/// Gives back what is too much; says how much is missing.
fn missing(permit: &mut Option<OwnedSemaphorePermit>, wanted: usize) -> usize {
    let own = held(permit.as_ref());
    if own > wanted {
        drop(permit.as_mut().and_then(|permit| permit.split(own - wanted)));
    }
    wanted.saturating_sub(own)
}

fn add(permit: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match permit {
        Some(own) => own.merge(more),
        None => *permit = Some(more),
    }
}

impl Share {
    /// Units of both budgets for so many bytes. One that is alone may have any number.
    fn wanted(&self, bytes: usize) -> (usize, usize) {
        let small = bytes.min(self.budget.small_bytes);
        (small.div_ceil(UNIT), (bytes - small).div_ceil(UNIT).min(self.budget.largest))
    }

    /// Bytes that are held, in whole units.
    pub(crate) fn held_bytes(&self) -> usize {
        (held(self.small.as_ref()) + held(self.large.as_ref())) * UNIT
    }

    /// Whether it has to wait for the process before it holds so many units of large ones.
    fn must_wait(&self, wanted: usize) -> bool {
        self.budget.is_short_of(wanted.saturating_sub(held(self.large.as_ref())))
    }

    /// Holds so many bytes in all, if that is possible at once.
    pub(crate) fn try_hold(&mut self, bytes: usize) -> bool {
        let wanted = self.wanted(bytes);
        if self.must_wait(wanted.1) {
            return false;
        }
        let before = self.held_bytes();
        let is_held = self.try_take(wanted);
        if self.held_bytes() < before {
            self.budget.given_back.notify_waiters();
        }
        self.note_holder();
        is_held
    }

    fn try_take(&mut self, wanted: (usize, usize)) -> bool {
        for (permit, budget, wanted) in
            [(&mut self.small, &self.budget.small, wanted.0), (&mut self.large, &self.budget.large, wanted.1)]
        {
            let more = missing(permit, wanted);
            if more > 0 {
                let Ok(more) = Arc::clone(budget).try_acquire_many_owned(more as u32) else { return false };
                add(permit, more);
            }
        }
        true
    }

    fn note_holder(&mut self) {
        let holds = held(self.large.as_ref()) > 0;
        if holds != self.holder.is_some() {
            self.holder = holds.then(|| Counted::begin(&self.budget.holders).0);
        }
    }

    /// Counts no more among those that may wait: the unpacked form of its body does, for both. Else, of bodies that wait for
    /// each other to be unpacked, none would find that all wait.
    fn leave_holders(&mut self) {
        self.holder = None;
    }

    /// Begins to wait with what it holds. Says whether it had better give up: all that hold some wait for more, and none of
    /// them would give any back.
    fn wait_among_others(&self, bytes: usize) -> (Option<Counted>, bool) {
        if self.holder.is_none() {
            return (None, false);
        }
        let (waits, stuck) = Counted::begin(&self.budget.stuck);
        // Of several that come here at once only one is the last: the number is that of its own beginning.
        let is_last = stuck >= self.budget.holders.load(SeqCst);
        // The process gets its memory back whoever waits.
        (Some(waits), is_last && !self.must_wait(self.wanted(bytes).1))
    }

    /// Holds so many bytes in all; waits a moment for others to give some back, and longer if it is this body's turn.
    ///
    /// # Errors
    /// Unavailable: nobody did.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<()> {
        let wait = if self.turn.is_now() { TURN_WAIT } else { WAIT };
        self.hold_within(bytes, wait).await
    }

    async fn hold_within(&mut self, bytes: usize, wait: Duration) -> Result<()> {
        if self.try_hold(bytes) {
            return Ok(());
        }
        let wanted = self.wanted(bytes);
        let waiting = Arc::clone(&self.budget.waiting);
        let _waiting = WaitingRequest::begin(&waiting);
        let waited = tokio::time::timeout(wait, async {
            while self.must_wait(wanted.1) {
                tokio::time::sleep(SHORT_STEP).await;
            }
            for (permit, budget, wanted) in
                [(&mut self.small, &self.budget.small, wanted.0), (&mut self.large, &self.budget.large, wanted.1)]
            {
                let more = missing(permit, wanted);
                // Nobody closes it.
                if more > 0
                    && let Ok(more) = Arc::clone(budget).acquire_many_owned(more as u32).await
                {
                    add(permit, more);
                }
            }
        });
        let done = waited.await;
        self.note_holder();
        done.map_err(|_| used_up())
    }

    /// Waits for the turn of a body that is large, or will be.
    ///
    /// # Errors
    /// Unavailable: others were not done in time.
    async fn take_turn(&mut self, seen: usize, length: &Length) -> Result<()> {
        let turns = &self.budget.turns;
        let units = match length.stated {
            Some(stated) => length.unpacked_units(stated),
            None if turns.is_needed(length.unpacked_units(seen), false) => length.bytes_max.div_ceil(UNIT),
            None => 0,
        };
        // What is only announced takes no turn.
        if seen <= self.budget.small_bytes || !turns.is_needed(units, true) || self.turn.pass_on() {
            return Ok(());
        }
        // Small bodies have a budget of their own, so that nobody who has a turn waits for those who wait for theirs.
        self.try_hold(seen.min(self.held_bytes().max(self.budget.small_bytes)));
        let waiting = Arc::clone(&self.budget.waiting);
        let _waiting = WaitingRequest::begin(&waiting);
        self.turn = self.budget.turns.wait(units).await.ok_or_else(used_up)?;
        Ok(())
    }

    /// Waits for the next piece of the body that the share is of; dropped and called again it goes on.
    ///
    /// # Errors
    /// Those of [`broken`]. `SenderTimeout`: the sender is slow, and others wait for what the body holds.
    pub(crate) async fn next(&mut self, chunks: &mut BodyDataStream) -> Result<Option<Bytes>> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let chunk = tokio::select! {
            biased;
            chunk = chunks.next() => chunk.transpose().map_err(|e| broken(&e))?,
            () = self.outstayed(since) => {
                let text = "others wait for the memory that this body holds, and it comes slowly";
                return Err(Error::new(ErrorKind::SenderTimeout, text));
            }
        };
        self.since = None;
        self.pace.got(chunk.as_ref().map_or(0, Bytes::len), since.elapsed());
        Ok(chunk)
    }

    /// Ends when a slow sender is in the way of others.
    async fn outstayed(&self, since: Instant) {
        if self.large.is_none() && !self.turn.is_now() {
            return std::future::pending().await;
        }
        tokio::time::sleep(self.pace.left().saturating_sub(since.elapsed())).await;
        // The budget keeps the other end.
        let _ = self.budget.waiting.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

fn used_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the memory for bodies of requests is used up, try again later")
}
