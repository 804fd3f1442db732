//! Memory of request bodies: what has been read of all requests and is not yet decoded stays within one budget.
//!
//! A body is charged as it arrives and not by its stated length, since a mere announcement takes no memory. If nothing
//! is left it waits for a moment, then is refused with 503 and `Retry-After`. The first bytes of each body come from a
//! separate budget, so that large bodies of slow senders do not block small requests. A slow sender must give memory
//! back (408) if others wait for it.
//!
//! Large bodies take turns (`turns`), or each would get a piece and none all that it needs.
//!
//! Decoded bodies have a second budget of the same kind, held until they are stored, since a few bytes can expand to
//! many. Request heads have a third, held from the first byte of a head until its request is answered.

#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream, Bytes};
use bytes::BytesMut;
use futures::StreamExt;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use quiver_ingest::{DecodeRoom, Encoding, codec};
use quiver_types::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::demand::{Demand, Needed};
use crate::serve::pace::{Pace, TooSlow};
use turns::{TURN_WAIT, Turn, Turns};

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
/// How many times as long a packed body is taken to be when it is unpacked.
const PACKED: usize = 8;
/// How much of a body that is not wanted is read, so that the client gets to see the answer.
const DRAIN_BYTES_MAX: usize = 64 << 20;

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
    /// For bodies that want much of `large`.
    turns: Turns,
    /// For what bodies are decoded to; none: that comes out of this one.
    decoded: Option<Arc<Self>>,
    /// Those who found no room to decode something.
    refused: Arc<Demand>,
}

/// One of those that wait.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|n| *n += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
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
            turns: Turns::new(largest),
            decoded: None,
            refused: Arc::default(),
        }
    }

    /// Begins to decode a body; what it takes is given back when the room is dropped.
    pub(crate) fn decoding(&self) -> Arc<dyn DecodeRoom> {
        self.decoding_on(false)
    }

    /// Likewise, for a decoder that waits for others if it has a thread of its own.
    pub(crate) fn decoding_on(&self, own_thread: bool) -> Arc<dyn DecodeRoom> {
        Arc::new(Decoding(Mutex::new(Beside::new(self.decoded_share(), own_thread))))
    }

    /// Begins with nothing for the unpacked form of a body, which stands beside it.
    pub(crate) fn share_beside(&self, own_thread: bool) -> Beside {
        Beside::new(self.share(), own_thread)
    }

    /// Tells whether others need that memory, for responses that hold some.
    pub(crate) fn decoding_needed(&self) -> Arc<dyn Needed> {
        Arc::clone(&self.decoded.as_deref().unwrap_or(self).refused) as _
    }

    /// Begins with nothing of the same memory, for who can wait.
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
        }
    }
}

/// What stands beside a body while it is decoded: its unpacked form, or the batch of its rows.
#[derive(Debug)]
pub(crate) struct Beside {
    share: Share,
    /// Who keeps the time while a thread of its own waits; threads that serve sockets do not.
    runtime: Option<Handle>,
    /// When waiting ends, once it has begun.
    until: Option<Instant>,
}

impl Beside {
    fn new(share: Share, own_thread: bool) -> Self {
        Self { share, runtime: own_thread.then(Handle::current), until: None }
    }

    /// Holds so many bytes in all; waits for others to give some back if it may, but not for long in all.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        if self.share.try_hold(bytes) {
            return true;
        }
        let Some(runtime) = &self.runtime else { return false };
        let until = *self.until.get_or_insert_with(|| Instant::now() + TURN_WAIT);
        let left = until.saturating_duration_since(Instant::now());
        runtime.block_on(self.share.hold_within(bytes, left)).is_ok()
    }
}

/// What the batch of one request holds, until it is dropped.
struct Decoding(Mutex<Beside>);

impl DecodeRoom for Decoding {
    fn hold(&self, bytes: usize) -> bool {
        let mut share = self.0.lock();
        let is_held = share.try_hold(bytes);
        if !is_held {
            share.budget.refused.refuse();
        }
        is_held
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

    /// Holds so many bytes in all, if that is possible at once.
    pub(crate) fn try_hold(&mut self, bytes: usize) -> bool {
        let wanted = self.wanted(bytes);
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
        let _waiting = Waiting::begin(&waiting);
        let waited = tokio::time::timeout(wait, async {
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
        waited.await.map_err(|_| used_up())
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
        let _waiting = Waiting::begin(&waiting);
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

/// What is known of a body's length.
struct Length {
    stated: Option<usize>,
    bytes_max: usize,
    /// How many times as long it is when it is unpacked, about.
    growth: usize,
}

impl Length {
    fn of(headers: &HeaderMap, stated: Option<usize>, bytes_max: usize) -> Self {
        let mut encodings = ["content-encoding", "grpc-encoding"].into_iter().filter_map(|name| headers.get(name));
        let is_packed = encodings.any(|name| !name.is_empty() && !name.as_bytes().eq_ignore_ascii_case(b"identity"));
        Self { stated, bytes_max, growth: if is_packed { PACKED } else { 1 } }
    }

    /// A call of gRPC states the length of its message in front of it.
    fn read_frame(&mut self, headers: &HeaderMap, first: &[u8]) {
        let is_grpc = headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"));
        if let ([_, a, b, c, d, ..], true, None) = (first, is_grpc, self.stated) {
            self.stated = Some((u32::from_be_bytes([*a, *b, *c, *d]) as usize).min(self.bytes_max));
        }
    }

    fn unpacked_units(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.growth).div_ceil(UNIT)
    }
}

/// Why a body broke off.
pub(crate) fn broken(error: &axum::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<TooSlow>() {
            return Error::new(ErrorKind::SenderTimeout, TooSlow.to_string());
        }
        cause = error.source();
    }
    Error::invalid("the body ended early")
}

/// Bytes with their share.
struct Held {
    bytes: Bytes,
    /// Given back when the bytes go.
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body up to a limit, which the stated length is checked against first. The bytes hold their share of the budget.
pub(crate) async fn read_body(budget: &BodyBudget, headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes> {
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    let too_large = || Error::new(ErrorKind::TooLarge, format!("body is larger than {bytes_max} bytes"));
    let excess = stated.map_or(0, |n| n.saturating_sub(bytes_max));
    // So much would not be read to its end, and who asks before it sends anything needs no more than the answer.
    if excess > DRAIN_BYTES_MAX || excess > 0 && headers.contains_key(header::EXPECT) {
        return Err(too_large());
    }
    let mut length = Length::of(headers, stated, bytes_max);
    let mut refused = (excess > 0).then(too_large);
    let mut share = budget.share();
    let mut chunks = body.into_data_stream();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut seen = 0;
    while let Some(chunk) = share.next(&mut chunks).await? {
        if seen == 0 {
            length.read_frame(headers, &chunk);
        }
        seen += chunk.len();
        if seen > bytes_max + DRAIN_BYTES_MAX {
            break;
        }
        if refused.is_none() && seen > bytes_max {
            refused = Some(too_large());
        }
        if refused.is_none() {
            refused = share.take_turn(seen, &length).await.err();
        }
        if refused.is_none() {
            // When its memory grows, what is there is moved, and for a moment stands in both places.
            let moved = if whole.capacity() - whole.len() < chunk.len() { whole.len() } else { 0 };
            refused = share.hold(seen + moved).await.err();
        }
        if refused.is_some() {
            // Most clients read the answer only after they have sent everything: what is not wanted is read and dropped.
            (first, whole, share) = (Bytes::new(), BytesMut::new(), budget.share());
            continue;
        }
        if first.is_empty() && whole.is_empty() {
            first = chunk;
            continue;
        }
        if whole.is_empty() {
            // Pages that nothing was written to are no memory yet.
            whole.reserve(length.stated.unwrap_or(seen).max(seen));
        }
        whole.extend_from_slice(&std::mem::take(&mut first));
        whole.extend_from_slice(&chunk);
    }
    match refused {
        Some(error) => Err(error),
        None if seen == 0 => Ok(first),
        None => {
            // Less than before, or as much.
            share.try_hold(seen);
            let bytes = if whole.is_empty() { first } else { whole.freeze() };
            Ok(Bytes::from_owner(Held { bytes, _share: share }))
        }
    }
}

/// Reads a body that may be packed (`Content-Encoding`) up to a limit, which holds for what is in it, too.
///
/// # Errors
/// As [`read_body`]; Unsupported: packed in a way that nobody knows; Invalid: it cannot be unpacked.
pub(crate) async fn read_unpacked(
    budget: &BodyBudget,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes> {
    let body = read_body(budget, headers, body, bytes_max).await?;
    let named = headers.get(header::CONTENT_ENCODING).filter(|_| !body.is_empty());
    let encoding = Encoding::from_header(named.map(|v| v.to_str().unwrap_or("?")))?;
    if encoding == Encoding::Identity {
        return Ok(body);
    }
    let mut beside = budget.share_beside(true);
    let unpack = move || {
        let unpacked = codec::decompress(encoding, &body, bytes_max, &mut |bytes| beside.hold(bytes));
        unpacked.map(|bytes| Held { bytes: Bytes::from(bytes.into_owned()), _share: beside.share })
    };
    let unpacked = tokio::task::spawn_blocking(unpack).await;
    let unpacked = unpacked.map_err(|e| Error::internal("unpacking met a fault of ours").with_source(e))?;
    Ok(Bytes::from_owner(unpacked?))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::HeaderValue;

    use super::*;

    /// The form `query=1`, compressed by gzip.
    const GZIP: [u8; 27] =
        [31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 44, 77, 45, 170, 180, 53, 4, 0, 226, 19, 110, 124, 7, 0, 0, 0];

    #[test]
    fn batches_share_what_there_is() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let (first, second) = (budget.decoding(), budget.decoding());
        let half = (1 << 20) + SMALL_BATCH_BYTES;
        assert!(first.hold(half) && second.hold(half));
        assert!(!first.hold(half + UNIT), "two megabytes are all there is for large ones");
        drop(second);
        // One that is alone may have more than there is.
        assert!(first.hold(1 << 30));
        assert!(!budget.decoding().hold(SMALL_BATCH_BYTES + 1));
        // Small ones have room beside it, and are counted from their first byte.
        let mut small = Vec::new();
        loop {
            let room = budget.decoding();
            if !room.hold(SMALL_BATCH_BYTES) {
                break;
            }
            small.push(room);
        }
        assert_eq!(small.len(), (1 << 20) / SMALL_BATCH_BYTES - 1);
        assert!(!budget.decoding().hold(1));
        drop((first, small));
        assert!(budget.decoding().hold(2 << 20));
    }

    #[tokio::test]
    async fn bodies_may_be_packed() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let read = async |encoding: &'static str, body: &[u8], bytes_max: usize| {
            let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(encoding))]);
            let read = read_unpacked(&budget, &headers, Body::from(body.to_vec()), bytes_max).await;
            read.map_err(|error| error.kind)
        };
        assert_eq!(read("gzip", &GZIP, 100).await.unwrap(), "query=1");
        assert_eq!(read("identity", b"query=1", 100).await.unwrap(), "query=1");
        assert_eq!(read("br", b"", 100).await.unwrap(), "");
        assert_eq!(read("br", b"query=1", 100).await.unwrap_err(), ErrorKind::Unsupported);
        assert_eq!(read("gzip", b"query=1", 100).await.unwrap_err(), ErrorKind::Invalid);
        assert_eq!(budget.small.available_permits(), BodyBudget::new(1 << 20, 1 << 20).small.available_permits());
        let many = codec_bomb();
        assert_eq!(read("zstd", &many, 1000).await.unwrap_err(), ErrorKind::TooLarge);
    }

    /// A million zeros as one block of zstd that says "so many of this".
    fn codec_bomb() -> Vec<u8> {
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
        let block = |last: u32| ((128 << 10) << 3 | 1 << 1 | last).to_le_bytes();
        let blocks = (0..8).flat_map(|n| [&block(u32::from(n == 7))[..3], &[0]].concat());
        frame.into_iter().chain(blocks).collect()
    }

    fn body_of(chunks: Vec<Bytes>) -> Body {
        Body::from_stream(futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
    }

    #[tokio::test]
    async fn bodies_share_what_there_is() {
        let budget = BodyBudget::new(1 << 20, 128 * 1024);
        let read = async |bytes: usize| {
            let pieces = vec![Bytes::from(vec![7; bytes / 4]); 4];
            read_body(&budget, &HeaderMap::new(), body_of(pieces), 1 << 20).await
        };
        let first = read(1 << 20).await.expect("alone it has room");
        assert_eq!(first.len(), 1 << 20);
        // What is over its small share fills most of the budget.
        let error = read(512 * 1024).await.expect_err("there is no room for another");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(read(4096).await.is_ok(), "there is for a small one");
        drop(first);
        assert!(read(1 << 20).await.is_ok(), "all was given back");
        let error = read(2 << 20).await.expect_err("too large");
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert!(read(1 << 20).await.is_ok(), "what was refused holds nothing");
    }

    #[tokio::test]
    async fn who_is_slow_gives_way_to_who_waits() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![7; 1 << 20]))]);
        let stalled = Body::from_stream(begun.chain(futures::stream::pending()));
        let (own, headers) = (budget.clone(), HeaderMap::new());
        let stalled = tokio::spawn(async move { read_body(&own, &headers, stalled, 2 << 20).await });
        tokio::time::sleep(SLOW.1 + WAIT / 2).await;
        assert!(!stalled.is_finished(), "nobody waits");
        let headers = HeaderMap::new();
        let other = read_body(&budget, &headers, body_of(vec![Bytes::from(vec![7; 1 << 20])]), 1 << 20);
        assert_eq!(other.await.expect("it gets the room").len(), 1 << 20);
        let error = stalled.await.expect("ends").expect_err("it is told");
        assert_eq!(crate::error::status_of(error.kind), http::StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told() {
        let slow = futures::stream::iter([Err::<Bytes, _>(TooSlow)]);
        let error = read_body(&BodyBudget::new(1, 1), &HeaderMap::new(), Body::from_stream(slow), 1).await;
        assert_eq!(error.expect_err("too slow").kind, ErrorKind::SenderTimeout);
    }

    #[test]
    fn heads_share_what_there_is() {
        let budget = BodyBudget::of_heads(0);
        let half = HEAD_UNITS_MIN / 2;
        let large = 16 * UNIT + SMALL_HEAD_BYTES;
        let mut held = Vec::new();
        loop {
            let mut share = budget.share();
            if !share.try_hold(large) {
                break;
            }
            held.push(share);
        }
        assert_eq!(held.len(), half / 16, "as many as fit");
        let mut other = budget.share();
        assert!(other.try_hold(SMALL_HEAD_BYTES), "a small one has room beside large ones");
        assert!(!other.try_hold(large), "another large one has none");
        drop(held);
        assert!(other.try_hold(large), "all was given back");
        assert!(other.try_hold(0), "nothing always fits");
        assert_eq!(budget.small.available_permits() + budget.large.available_permits(), 2 * half);
    }

    #[test]
    fn who_finds_no_room_to_decode_is_counted() {
        let (budget, most) = (BodyBudget::new(1 << 20, 1 << 20), 2 << 20);
        let (held, needed) = (budget.decoding(), budget.decoding_needed());
        assert!(held.hold(most) && !needed.is_needed(0));
        assert!(!budget.decoding().hold(most) && needed.is_needed(0));
    }

    #[tokio::test]
    async fn small_ones_have_room_beside_large_ones() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let mut large = budget.share();
        large.hold(1 << 20).await.expect("alone");
        let mut other = budget.share();
        assert!(!other.try_hold(1 << 20), "large ones are full");
        other.hold(SMALL_BYTES).await.expect("a small one has room");
        // One that waits gets what another gives back.
        let waiting = tokio::spawn(async move { other.hold(512 * 1024).await.map(|()| other) });
        // It has its turn on this thread, and waits.
        tokio::task::yield_now().await;
        large.hold(UNIT).await.expect("less than before");
        assert!(waiting.await.expect("ends").is_ok());
    }

    /// Breaks where a body is cut, or put together in another order than it came.
    #[tokio::test]
    async fn bodies_are_whole_however_they_come() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let whole: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        for piece in [7, 1024, 4096, whole.len()] {
            for stated in [None, Some("10000"), Some("5"), Some("no number")] {
                let headers: HeaderMap =
                    stated.map(|text| (header::CONTENT_LENGTH, HeaderValue::from_static(text))).into_iter().collect();
                let chunks = whole.chunks(piece).map(Bytes::copy_from_slice).collect();
                let read = read_body(&budget, &headers, body_of(chunks), whole.len()).await.unwrap();
                assert_eq!(read, whole, "in pieces of {piece}, {stated:?} stated");
            }
        }
        let empty = read_body(&budget, &HeaderMap::new(), body_of(vec![Bytes::new(), Bytes::new()]), 0).await;
        assert_eq!(empty.unwrap().len(), 0);
        assert_eq!(budget.small.available_permits(), (1 << 20) / UNIT / 4, "all was given back");
    }

    #[tokio::test]
    async fn bodies_are_too_large_by_what_they_state_or_hold() {
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let read = async |stated: Option<&'static str>, bytes: usize, bytes_max: usize| {
            let headers: HeaderMap =
                stated.map(|text| (header::CONTENT_LENGTH, HeaderValue::from_static(text))).into_iter().collect();
            let chunks = vec![Bytes::from(vec![7; bytes])];
            let read = read_body(&budget, &headers, body_of(chunks), bytes_max).await;
            read.map(|body| body.len()).map_err(|error| (error.kind, error.message))
        };
        let too_large = Err((ErrorKind::TooLarge, "body is larger than 100 bytes".to_owned()));
        assert_eq!(read(None, 100, 100).await, Ok(100));
        assert_eq!(read(Some("100"), 100, 100).await, Ok(100));
        assert_eq!(read(None, 101, 100).await, too_large);
        assert_eq!(read(Some("101"), 1, 100).await, too_large, "what is promised is not waited for");
        assert_eq!(read(Some("1"), 101, 100).await, too_large);
        assert_eq!(read(Some("101"), 0, 100).await, too_large);
    }

    /// Breaks where a body is waited for that nobody would read, or where its client is asked to send it.
    #[test]
    fn bodies_that_their_heads_refuse_are_not_waited_for() {
        let read = |stated: &'static str, expect: Option<&'static str>| {
            let fields = [(header::CONTENT_LENGTH, Some(stated)), (header::EXPECT, expect)];
            let headers: HeaderMap =
                fields.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::from_static(text?)))).collect();
            let silent = Body::from_stream(futures::stream::pending::<std::io::Result<Bytes>>());
            let read = read_body(&BodyBudget::new(1, 1), &headers, silent, 100).now_or_never();
            read.map(|body| body.map(|bytes| bytes.len()).map_err(|error| error.kind))
        };
        let too_large = Some(Err(ErrorKind::TooLarge));
        assert_eq!(read("99999999999999", None), too_large);
        assert_eq!(read("99999999999999", Some("100-continue")), too_large);
        assert_eq!(read("101", Some("100-continue")), too_large);
        // This client gets to see the answer once it has sent all.
        assert_eq!(read("101", None), None);
        assert_eq!(read("100", Some("100-continue")), None);
    }

    #[tokio::test]
    async fn bodies_that_break_off_are_told_apart() {
        let read = async |error: Box<dyn std::error::Error + Send + Sync>| {
            let begun = [Ok(Bytes::from_static(b"a")), Err(error)];
            let body = Body::from_stream(futures::stream::iter(begun));
            let budget = BodyBudget::new(1 << 20, 1 << 20);
            read_body(&budget, &HeaderMap::new(), body, 100).await.map_err(|error| (error.kind, error.message))
        };
        let early = Err((ErrorKind::Invalid, "the body ended early".to_owned()));
        assert_eq!(read(std::io::Error::other("reset").into()).await, early);
        assert_eq!(read("anything".into()).await, early);
        let slow = Err((ErrorKind::SenderTimeout, "the body came too slowly".to_owned()));
        assert_eq!(read(TooSlow.into()).await, slow);
        // Whatever wraps it.
        assert_eq!(read(axum::Error::new(axum::Error::new(TooSlow)).into()).await, slow);
    }
}
