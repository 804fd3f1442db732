//! What is known of a request wherever it is processed: its id, its trace, its sender, what it asks for.
//!
//! It is a task-local value (`current`), so handlers need not pass it on, and a span around all log lines.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderValue, Uri};
use parking_lot::Mutex;
use quiver_auth::Identity;
use tracing::Span;

use crate::identity::anonymous::NOBODY;
use crate::identity::rate_limits::Meter;
use crate::opaque_ids::IdPermutation;
use crate::response_pressure::ContendedResource;
use crate::usage::intake::RequestIntake;

/// Header with the id of a request, which the response repeats.
pub(crate) const ID_HEADER: &str = "x-request-id";
/// Header of W3C Trace Context.
const TRACE_HEADER: &str = "traceparent";
/// Longest request id that is accepted from a client.
const ID_BYTES_MAX: usize = 128;
/// Most things that are noted of a response, say queries of one request.
const HELD_MAX: usize = 64;

/// Makes request ids: 16 hexadecimal digits, unique within the process and almost certainly beyond.
#[derive(Debug, Default)]
pub struct RequestIds {
    numbers: IdPermutation,
    made: AtomicU64,
}

impl RequestIds {
    /// Makes the next id.
    fn next(&self) -> HeaderValue {
        let n = self.numbers.of(self.made.fetch_add(1, Relaxed));
        HeaderValue::try_from(format!("{n:016x}")).expect("hexadecimal digits")
    }

    /// Gives the id that a request brings, if it is safe to show anywhere, else a new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        headers.get(ID_HEADER).filter(|id| is_sane(id.as_bytes())).cloned().unwrap_or_else(|| self.next())
    }
}

/// Says whether an id is safe in log lines, headers and URLs.
fn is_sane(id: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(b);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain)
}

/// What is known about a request while it is handled.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    /// Its id, which [`is_sane`].
    id: HeaderValue,
    /// Id of the trace that the client assigned it to.
    trace: Option<[u8; 32]>,
    /// Address of the client.
    pub(crate) peer: Option<SocketAddr>,
    /// The URL under which the client reaches us, according to a trusted proxy.
    pub(crate) base_url: Option<Arc<str>>,
    /// Path and query.
    target: Uri,
    /// The caller, once authenticated.
    pub(crate) identity: Arc<Identity>,
    /// Counts the telemetry that it sends, if that is limited.
    pub(crate) meter: Option<Meter>,
    /// Number of its records that the sender may not write.
    refused: Arc<AtomicU64>,
    /// What was not taken of its telemetry for other reasons.
    dropped: Arc<OnceLock<HeaderValue>>,
    /// Statistics of the telemetry that it sends, if wanted.
    pub(crate) taken: Option<Arc<RequestIntake>>,
    /// What its response may hold until it is sent.
    held: Arc<Mutex<Vec<Arc<dyn ContendedResource>>>>,
}

tokio::task_local! {
    static CURRENT: RequestInfo;
}

impl RequestInfo {
    /// Reads a request.
    pub(crate) fn of<B>(ids: &RequestIds, request: &http::Request<B>) -> Self {
        let parent = request.headers().get(TRACE_HEADER);
        Self {
            id: ids.of(request.headers()),
            trace: parent.and_then(|value| trace_of(value.as_bytes())),
            peer: request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0),
            base_url: None,
            target: request.uri().clone(),
            identity: Arc::clone(&NOBODY),
            meter: None,
            refused: Arc::default(),
            dropped: Arc::default(),
            taken: None,
            held: Arc::default(),
        }
    }

    /// Adds to the statistics of the current request, if wanted.
    pub(crate) fn note_taken(note: impl FnOnce(&RequestIntake)) {
        let _ = CURRENT.try_with(|request| request.taken.as_deref().map(note));
    }

    /// Counts records of the current request that were refused for a missing right.
    pub(crate) fn note_refused(count: u64) {
        // Outside of a request there is no response to tell it in.
        let _ = CURRENT.try_with(|request| request.refused.fetch_add(count, Relaxed));
    }

    /// Notes how many records of the current request were not taken, and why: `too_old=3`.
    pub(crate) fn note_dropped(text: &str) {
        let _ = CURRENT.try_with(|request| HeaderValue::from_str(text).map(|value| request.dropped.set(value)));
    }

    /// Counts records of telemetry in the current request.
    pub(crate) fn note_records(count: u64) {
        let _ = CURRENT.try_with(|request| request.meter.as_ref().map(|meter| meter.records(count)));
    }

    /// Notes what the response to the current request may hold until it is sent, such as the memory of a query.
    pub(crate) fn note_held(held: Arc<dyn ContendedResource>) {
        let _ = CURRENT.try_with(|request| {
            let mut all = request.held.lock();
            if all.len() < HELD_MAX {
                all.push(held);
            }
        });
    }

    /// What was noted so far.
    pub(crate) fn contended_resources() -> Vec<Arc<dyn ContendedResource>> {
        CURRENT.try_with(|request| request.held.lock().clone()).unwrap_or_default()
    }

    /// What was noted of records that were not taken.
    pub(crate) fn dropped(&self) -> Option<&HeaderValue> {
        self.dropped.get()
    }

    /// The counter of refused records.
    pub(crate) fn refused(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refused)
    }

    /// Describes a statement on a connection of another protocol than HTTP.
    pub(crate) fn of_connection(ids: &RequestIds, peer: SocketAddr, identity: Arc<Identity>) -> Self {
        let (trace, base_url, target) = (None, None, Uri::default());
        Self {
            id: ids.next(),
            trace,
            peer: Some(peer),
            base_url,
            target,
            identity,
            meter: None,
            refused: Arc::default(),
            dropped: Arc::default(),
            taken: None,
            held: Arc::default(),
        }
    }

    /// The current request; `None` outside of requests.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs work with this as the current request.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// Wraps work for a separate task, so that it has the same current request.
    pub(crate) fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let current = Self::current();
        async move {
            match current {
                Some(request) => request.scope(work).await,
                None => work.await,
            }
        }
    }

    /// Its id as text.
    pub(crate) fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Its id as a header.
    pub(crate) fn id_header(&self) -> HeaderValue {
        self.id.clone()
    }

    /// Its trace id, in hexadecimal digits.
    pub(crate) fn trace(&self) -> Option<&str> {
        self.trace.as_ref().and_then(|trace| std::str::from_utf8(trace).ok())
    }

    /// Path and query as they came.
    pub(crate) fn target(&self) -> String {
        self.target.path_and_query().map_or_else(String::new, ToString::to_string)
    }

    /// Its path, without parameters.
    pub(crate) fn path(&self) -> &str {
        self.target.path()
    }

    /// The tracing span for log lines of the request.
    pub(crate) fn span(&self) -> Span {
        if let Some(trace_id) = self.trace() {
            tracing::info_span!("request", id = self.id(), trace_id)
        } else {
            tracing::info_span!("request", id = self.id())
        }
    }
}

/// Reads the trace id of `version-trace-parent-flags` (W3C Trace Context); none when it is malformed.
fn trace_of(value: &[u8]) -> Option<[u8; 32]> {
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|b| *b == b'0');
    let mut parts = value.split(|b| *b == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let known = version != b"ff" && (version != b"00" || parts.next().is_none());
    let formed = [(version, 2), (trace, 32), (parent, 16), (flags, 2)].iter().all(|(p, len)| p.len() == *len && hex(p));
    if !known || !formed || zero(trace) || zero(parent) {
        return None;
    }
    trace.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_where_they_are_sane() {
        let ids = RequestIds::default();
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(ID_HEADER, HeaderValue::from_bytes(value).unwrap());
            ids.of(&headers).as_bytes().to_vec()
        };
        let check = |value: &[u8], taken: bool| assert_eq!(id(value) == value, taken, "{value:?}");
        check(b"7f3a-span-1", true);
        check(b"a/b+c==.d:e@f_g", true);
        check(&[b'x'; ID_BYTES_MAX], true);
        check(&[b'x'; ID_BYTES_MAX + 1], false);
        check(b"", false);
        check(b"a b", false);
        check(b"a\"b", false);
        check("ä".as_bytes(), false);
        let made: std::collections::HashSet<_> = (0..1000).map(|_| ids.of(&HeaderMap::new())).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|id| id.len() == 16));
        // Which numbers two ids stand for, and so how many came between, follows where all know how they are mixed.
        let number = || u64::from_str_radix(ids.of(&HeaderMap::new()).to_str().unwrap(), 16).unwrap();
        let (one, next) = (number(), number());
        let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!((0..10_000).all(|n| one ^ next != mixed(n) ^ mixed(n + 1)));
    }

    #[test]
    fn traces_of_parents() {
        let check = |value: &str, taken: bool| assert_eq!(trace_of(value.as_bytes()).is_some(), taken, "{value}");
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true);
        check("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", true);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", false);
        check("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false);
        check("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check("00-4bf92f35-00f067aa0ba902b7-01", false);
        check("", false);
    }
}
