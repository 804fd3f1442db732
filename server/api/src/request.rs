//! What is known of a request wherever it is processed: its id, its trace, its sender, what it asks for.
//!
//! It is a task-local value (`current`), so handlers need not pass it on, and a span around all log lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderValue, Uri};
use quiver_auth::Identity;
use tracing::Span;

use crate::identity::rates::Meter;
use crate::identity::unnamed::NOBODY;
use crate::scattered::Scattered;
use crate::usage::intake::Taken;

/// Where a request says, and an answer repeats, which request it is.
pub(crate) const ID_HEADER: &str = "x-request-id";
/// Where the W3C puts the trace of a request.
const TRACE_HEADER: &str = "traceparent";
/// Longest id that is taken from a sender.
const ID_BYTES_MAX: usize = 128;

/// Makes ids: 16 hexadecimal digits that no other request of this process has, and hardly one of another.
#[derive(Debug, Default)]
pub struct RequestIds {
    numbers: Scattered,
    made: AtomicU64,
}

impl RequestIds {
    /// Makes the next id.
    fn next(&self) -> HeaderValue {
        let n = self.numbers.of(self.made.fetch_add(1, Relaxed));
        HeaderValue::try_from(format!("{n:016x}")).expect("hexadecimal digits")
    }

    /// Takes the id that a request brings where it can be shown anywhere, else makes one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        headers.get(ID_HEADER).filter(|id| is_sane(id.as_bytes())).cloned().unwrap_or_else(|| self.next())
    }
}

/// Says whether an id can stand in a log line, a header and a URL.
fn is_sane(id: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(b);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(plain)
}

/// What is known of an HTTP request while it is handled.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    /// Its id, which [`is_sane`].
    id: HeaderValue,
    /// Id of the trace that the sender counts it to.
    trace: Option<[u8; 32]>,
    /// Where it came from.
    pub(crate) peer: Option<SocketAddr>,
    /// What stands before our paths where the client reaches us, as a proxy says that is believed.
    pub(crate) base_url: Option<Arc<str>>,
    /// Path and query.
    target: Uri,
    /// Who sent it, once that was asked.
    pub(crate) identity: Arc<Identity>,
    /// Counts what it sends as telemetry, where that is bounded.
    pub(crate) meter: Option<Meter>,
    /// Records of it that its sender may not write.
    refused: Arc<AtomicU64>,
    /// What it brings, where that is asked for.
    pub(crate) taken: Option<Arc<Taken>>,
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
            taken: None,
        }
    }

    /// Notes in detail what the current request brings, where that is asked for.
    pub(crate) fn note_taken(note: impl FnOnce(&Taken)) {
        let _ = CURRENT.try_with(|request| request.taken.as_deref().map(note));
    }

    /// Counts records of the current request that were refused for want of a right.
    pub(crate) fn note_refused(count: u64) {
        // Without a request there is nobody to be told.
        let _ = CURRENT.try_with(|request| request.refused.fetch_add(count, Relaxed));
    }

    /// Counts records of telemetry that the current request brought.
    pub(crate) fn note_records(count: u64) {
        let _ = CURRENT.try_with(|request| request.meter.as_ref().map(|meter| meter.records(count)));
    }

    /// Where such records are counted.
    pub(crate) fn refused(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refused)
    }

    /// A statement of a connection that is none of HTTP.
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
            taken: None,
        }
    }

    /// The request that the task serves; none outside of requests.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Serves a request as the current one.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// Work for a task of its own that serves the current request, too.
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

    /// The trace that it belongs to, in hexadecimal digits.
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

    /// The span that log lines of the request stand in.
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
