//! Requests with an `Idempotency-Key`: each is stored once, and its repeats get the answer of the first.
//!
//! A request takes a [`Claim`] before it is written; others with the same key wait until the claim is settled. Key and
//! answer are written in the same WAL record as the rows, so after a crash either both are there or neither. They are
//! kept for ten minutes: all of them here, and durably in the WAL until the flush, then in the catalog. The table is
//! bounded by number and bytes; beyond that the oldest are forgotten early.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::{Error, ErrorKind, Millis, Result};
use tokio::sync::Notify;

use crate::metrics::METRICS;

/// How long an answered request is known.
pub const KEPT_MS: Millis = 10 * 60 * 1000;
/// Most answered requests that are known at once.
const COUNT_MAX: usize = 256 * 1024;
/// What one costs beside its texts.
const ENTRY_BYTES: usize = 256;

/// What makes two requests the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// Who sends; empty while there are no identities.
    pub caller: String,
    /// Path of the endpoint.
    pub path: String,
    /// Value of the header.
    pub key: String,
}

/// What a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code of HTTP.
    pub status: u16,
    /// Content type; empty: none.
    pub content_type: String,
    /// Body, in the form that the API keeps it.
    pub body: Vec<u8>,
}

/// A request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredRequest {
    /// Who sent it, where to, under which key.
    pub id: RequestId,
    /// Hash of its body: the same key with another body is another request.
    pub body_hash: u128,
    /// When it was answered, Unix milliseconds.
    pub at: Millis,
    /// What it was answered, and is answered when it comes again.
    pub answer: Answer,
}

impl AnsweredRequest {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let RequestId { caller, path, key } = &self.id;
        let texts = caller.len() + path.len() + key.len() + self.answer.content_type.len() + self.answer.body.len();
        texts + ENTRY_BYTES
    }

    /// Whether it need not be known any more.
    pub(crate) fn expired(&self, now: Millis) -> bool {
        now.saturating_sub(self.at) > KEPT_MS
    }
}

/// What became of a write that names itself.
#[derive(Debug)]
pub enum KeyedWrite {
    /// It was stored now.
    Stored(Arc<AnsweredRequest>),
    /// It was stored before.
    Repeated(Arc<AnsweredRequest>),
}

/// Requests under way and answered ones.
#[derive(Debug)]
pub(crate) struct Requests {
    inner: Mutex<Inner>,
    settled: Notify,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    states: HashMap<RequestId, State, FixedState>,
    /// Answered ones, oldest first; one that was forgotten or answered anew meanwhile may stand here still.
    order: VecDeque<Arc<AnsweredRequest>>,
    bytes: usize,
}

#[derive(Debug)]
enum State {
    Running,
    Answered(Arc<AnsweredRequest>),
}

/// The right to answer a request. Dropped without being settled, it leaves the request to the next.
#[derive(Debug)]
pub(crate) struct Claim {
    requests: Arc<Requests>,
    id: Option<RequestId>,
}

/// What stands behind a claim.
#[derive(Debug)]
pub(crate) enum ClaimOutcome {
    /// Nobody answered it yet.
    New(Claim),
    /// It was answered.
    Known(Arc<AnsweredRequest>),
}

impl Requests {
    /// Makes a table of at most so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Arc::new(Self { inner: Mutex::default(), settled: Notify::new(), bytes_max })
    }

    /// Adds what was answered before the start.
    pub(crate) fn load(&self, answered: Vec<Arc<AnsweredRequest>>, now: Millis) {
        let mut inner = self.inner.lock();
        for a in answered {
            inner.insert(a);
        }
        inner.order.make_contiguous().sort_by_key(|a| a.at);
        inner.shrink(now, self.bytes_max);
    }

    /// Claims a request; waits while another one with its identity is under way.
    ///
    /// # Errors
    /// Execution: it was answered with another body.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        id: &RequestId,
        body_hash: u128,
        now: impl Fn() -> Millis,
    ) -> Result<ClaimOutcome> {
        loop {
            let mut settled = pin!(self.settled.notified());
            // From here on no settling is missed.
            settled.as_mut().enable();
            {
                let mut inner = self.inner.lock();
                let now = now();
                inner.shrink(now, self.bytes_max);
                let state = inner.states.get(id).filter(|s| !matches!(s, State::Answered(a) if a.expired(now)));
                match state {
                    None => {
                        inner.states.insert(id.clone(), State::Running);
                        return Ok(ClaimOutcome::New(Claim { requests: Arc::clone(self), id: Some(id.clone()) }));
                    }
                    Some(State::Answered(known)) if known.body_hash == body_hash => {
                        METRICS.ingest_repeated_requests.inc();
                        return Ok(ClaimOutcome::Known(Arc::clone(known)));
                    }
                    Some(State::Answered(_)) => {
                        let text = format!("`Idempotency-Key` `{}` was used with another body", id.key);
                        return Err(Error::new(ErrorKind::Execution, text));
                    }
                    Some(State::Running) => {}
                }
            }
            settled.await;
        }
    }
}

impl Inner {
    fn insert(&mut self, answered: Arc<AnsweredRequest>) {
        self.bytes += answered.bytes();
        self.order.push_back(Arc::clone(&answered));
        self.states.insert(answered.id.clone(), State::Answered(answered));
    }

    /// Forgets what is too old, and the oldest while there is too much.
    fn shrink(&mut self, now: Millis, bytes_max: usize) {
        while let Some(oldest) = self.order.front() {
            let expired = oldest.expired(now);
            if !expired && self.bytes <= bytes_max && self.order.len() <= COUNT_MAX {
                break;
            }
            METRICS.ingest_forgotten_requests.add(u64::from(!expired));
            self.bytes -= oldest.bytes();
            let ours = |state: &State| matches!(state, State::Answered(known) if Arc::ptr_eq(known, oldest));
            if self.states.get(&oldest.id).is_some_and(ours) {
                self.states.remove(&oldest.id);
            }
            self.order.pop_front();
        }
    }
}

impl Claim {
    /// The request is durable and visible: whoever repeats it gets this answer.
    pub(crate) fn settle(mut self, answered: Arc<AnsweredRequest>) {
        self.id = None;
        self.requests.inner.lock().insert(answered);
        self.requests.settled.notify_waiters();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.requests.inner.lock().states.remove(&id);
            self.requests.settled.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: &str) -> RequestId {
        RequestId { caller: String::new(), path: "/p".into(), key: key.into() }
    }

    fn answered(key: &str, body_hash: u128, at: Millis) -> Arc<AnsweredRequest> {
        let answer = Answer { status: 200, content_type: String::new(), body: vec![7; 100] };
        Arc::new(AnsweredRequest { id: id(key), body_hash, at, answer })
    }

    async fn new(requests: &Arc<Requests>, key: &str, now: Millis) -> Claim {
        match requests.claim(&id(key), 1, || now).await {
            Ok(ClaimOutcome::New(claim)) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn one_runs_and_the_others_wait_for_it() {
        let requests = Requests::new(1 << 20);
        let first = new(&requests, "a", 0).await;
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let requests = Arc::clone(&requests);
                tokio::spawn(async move { requests.claim(&id("a"), 1, || 0).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|w| !w.is_finished()));
        first.settle(answered("a", 1, 0));
        for waiting in waiting {
            let known = waiting.await.expect("it runs");
            assert!(matches!(known, Ok(ClaimOutcome::Known(known)) if known.answer.status == 200));
        }
        let other = requests.claim(&id("a"), 2, || 0).await.expect_err("another body");
        assert_eq!(other.message, "`Idempotency-Key` `a` was used with another body");
        drop(new(&requests, "b", 0).await);
    }

    #[tokio::test]
    async fn one_that_fails_leaves_its_place_to_the_next() {
        let requests = Requests::new(1 << 20);
        let first = new(&requests, "a", 0).await;
        let next = {
            let requests = Arc::clone(&requests);
            tokio::spawn(async move { new(&requests, "a", 0).await })
        };
        tokio::task::yield_now().await;
        drop(first);
        next.await.expect("it gets the claim");
    }

    #[tokio::test]
    async fn known_for_ten_minutes_and_within_bounds() {
        let requests = Requests::new(3 * 400);
        requests.load(vec![answered("b", 1, 2000), answered("a", 1, 1000)], 3000);
        assert!(matches!(requests.claim(&id("a"), 1, || KEPT_MS + 1000).await, Ok(ClaimOutcome::Known(_))));
        drop(new(&requests, "a", KEPT_MS + 1001).await);
        assert!(matches!(requests.claim(&id("b"), 1, || KEPT_MS + 1001).await, Ok(ClaimOutcome::Known(_))));
        for (at, key) in [(4000, "c"), (5000, "d"), (6000, "e")] {
            new(&requests, key, 6000).await.settle(answered(key, 1, at));
        }
        // Room for three: the oldest is not known any more.
        drop(new(&requests, "b", 6000).await);
        for key in ["c", "d", "e"] {
            assert!(matches!(requests.claim(&id(key), 1, || 6000).await, Ok(ClaimOutcome::Known(_))), "{key}");
        }
    }

    /// Breaks if what is forgotten goes on to count: the table would forget more and more of what it has room for.
    #[tokio::test]
    async fn what_is_forgotten_takes_no_room() {
        let one = answered("k000", 1, 0).bytes();
        let requests = Requests::new(10 * one as u64);
        for n in 0..100i64 {
            let key = format!("k{n:03}");
            new(&requests, &key, n).await.settle(answered(&key, 1, n));
        }
        // Once more, after ten minutes: the first of each name is forgotten, the second is not.
        let later = KEPT_MS + 100;
        for n in 95..100i64 {
            let key = format!("k{n:03}");
            new(&requests, &key, later + n).await.settle(answered(&key, 2, later + n));
        }
        {
            let mut inner = requests.inner.lock();
            inner.shrink(later + 100, requests.bytes_max);
            assert_eq!((inner.states.len(), inner.order.len(), inner.bytes), (5, 5, 5 * one));
            inner.shrink(later + 100 + 2 * KEPT_MS, requests.bytes_max);
            assert_eq!((inner.states.len(), inner.order.len(), inner.bytes), (0, 0, 0));
        }
        // A table without room knows what is under way alone.
        let none = Requests::new(0);
        let running = new(&none, "a", 0).await;
        drop(new(&none, "b", 0).await);
        running.settle(answered("a", 1, 0));
        drop(new(&none, "a", 0).await);
        assert!(none.inner.lock().states.is_empty());
    }

    #[tokio::test]
    async fn requests_are_told_apart_by_all_that_names_them() {
        let requests = Requests::new(1 << 20);
        let ids = [("", "/p", "k"), ("c", "/p", "k"), ("", "/q", "k"), ("", "/p", "K"), ("", "/pk", "")];
        let mut claims = Vec::new();
        for (caller, path, key) in ids {
            let id = RequestId { caller: caller.to_owned(), path: path.to_owned(), key: key.to_owned() };
            match requests.claim(&id, 1, || 0).await {
                Ok(ClaimOutcome::New(claim)) => claims.push(claim),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(requests.inner.lock().states.len(), ids.len());
        drop(claims);
        assert!(requests.inner.lock().states.is_empty());
    }

    #[test]
    fn ten_minutes_are_not_yet_too_long() {
        let request = answered("a", 1, 1000);
        assert!(!request.expired(1000 + KEPT_MS) && request.expired(1001 + KEPT_MS));
        assert!(!request.expired(0) && !request.expired(i64::MIN), "a clock that went back");
        assert!(answered("a", 1, i64::MIN).expired(i64::MAX));
    }
}
