//! Tracks what a connection is doing and when its time is up. The socket and the requests report to it; the task that
//! drives the connection asks it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::ServeSettings;

/// Why a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No complete head arrived in time.
    NoHead,
    /// There was no request for longer than the keep-alive timeout.
    Idle,
    /// The client does not read the response.
    Stuck,
    /// The client has closed its side, and its requests are not answered.
    Gone,
}

/// How long requests may take to be answered once their client has closed its side.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// What the next bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There has been no request yet.
    New,
    /// A head has begun.
    Head,
    /// Requests are under way.
    Serving,
    /// All requests were answered, and no further one has begun.
    Idle,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    requests: usize,
    /// Since when a write has been blocked.
    blocked: Option<Instant>,
    /// Since when the client's side is closed.
    gone: Option<Instant>,
    /// Whether bytes between requests begin a head. Not so in HTTP/2, where frames may arrive at any time, nor after
    /// a body that was not read to its end.
    heads: bool,
    /// How many requests have begun.
    begun: u64,
    /// Set if no head arrived in time; the socket then tells the client.
    expired: bool,
}

/// Watches one connection: how long it has been in a phase, and when that is too long.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    header_timeout: Duration,
    keep_alive: Duration,
    send_timeout: Duration,
    /// Bytes that the connection has sent.
    sent_bytes: AtomicU64,
}

impl Watch {
    /// Begins to watch a connection that was accepted at `since`.
    pub(super) fn new(settings: &ServeSettings, since: Instant) -> Arc<Self> {
        let state = State {
            phase: Phase::New,
            since,
            requests: 0,
            blocked: None,
            gone: None,
            heads: true,
            begun: 0,
            expired: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            header_timeout: settings.header_timeout,
            keep_alive: settings.keep_alive,
            send_timeout: settings.send_timeout,
            sent_bytes: AtomicU64::new(0),
        })
    }

    /// Notes that the connection speaks HTTP/2: the keep-alive timeout starts now.
    pub(super) fn is_http2(&self) {
        let mut state = self.state.lock();
        (state.heads, state.phase, state.since) = (false, Phase::Idle, Instant::now());
    }

    /// Notes that bytes arrived. Returns whether they may belong to a head.
    pub(super) fn received(&self) -> bool {
        let mut state = self.state.lock();
        if state.heads && state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::Head, Instant::now());
        }
        state.heads && state.requests == 0
    }

    /// Whether no request is under way and all of `whole` complete heads were handled, so that the socket may send an
    /// answer of its own without breaking into another one.
    pub(super) fn waits(&self, whole: u64) -> bool {
        let state = self.state.lock();
        state.heads && state.requests == 0 && state.begun == whole
    }

    /// Notes that a write made progress, or is blocked.
    pub(super) fn sent(&self, went_on: bool) {
        let mut state = self.state.lock();
        if went_on {
            state.blocked = None;
        } else {
            state.blocked.get_or_insert_with(Instant::now);
        }
    }

    /// Notes that bytes were sent.
    pub(super) fn wrote(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Notes that the client has closed its side.
    pub(super) fn gone(&self) {
        self.state.lock().gone.get_or_insert_with(Instant::now);
    }

    /// Notes that a body was left unread: what follows on the connection is not a head.
    pub(super) fn body_left(&self) {
        self.state.lock().heads = false;
    }

    /// Whether the client must be told that it took too long.
    pub(super) fn expired(&self) -> bool {
        self.state.lock().expired
    }

    pub(super) fn expire(&self) {
        self.state.lock().expired = true;
    }

    /// Begins a request. It ends when the guard is dropped, which the body of the response holds.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state.lock();
        let nth = state.begun;
        state.requests += 1;
        (state.phase, state.since, state.begun) = (Phase::Serving, Instant::now(), nth + 1);
        UnderWay { watch: Arc::clone(self), nth }
    }

    fn due(&self) -> Option<(Instant, Verdict)> {
        let state = self.state.lock();
        let phase = match state.phase {
            Phase::New | Phase::Head => Some((state.since + self.header_timeout, Verdict::NoHead)),
            Phase::Idle => Some((state.since + self.keep_alive, Verdict::Idle)),
            Phase::Serving => state.gone.map(|since| (since.max(state.since) + GONE_WITHIN, Verdict::Gone)),
        };
        match state.blocked.map(|since| (since + self.send_timeout, Verdict::Stuck)) {
            // The end of a response is still being sent: the connection is not idle.
            Some(stuck) => Some(stuck),
            None => phase,
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    watch: Arc<Watch>,
    nth: u64,
}

impl UnderWay {
    /// Number of the request on its connection, counted from 0.
    pub(super) fn nth(&self) -> u64 {
        self.nth
    }

    /// Bytes that its connection has sent so far.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.watch.sent_bytes.load(Relaxed)
    }

    /// Notes that the unread body was read and dropped: heads follow again.
    pub(super) fn body_came(&self) {
        self.watch.state.lock().heads = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        state.requests -= 1;
        if state.requests == 0 {
            (state.phase, state.since) = (Phase::Idle, Instant::now());
        }
    }
}

/// A future that ends when the time of a connection is up. It checks the watch whenever its task runs, so poll it
/// after the connection.
pub(super) struct Watchdog {
    watch: Arc<Watch>,
    sleep: Pin<Box<Sleep>>,
}

impl Watchdog {
    pub(super) fn new(watch: Arc<Watch>) -> Self {
        let at = watch.due().map_or_else(Instant::now, |(at, _)| at);
        Self { watch, sleep: Box::pin(sleep_until(at)) }
    }
}

impl Future for Watchdog {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let Some((at, verdict)) = self.watch.due() else { return Poll::Pending };
        if at <= Instant::now() {
            return Poll::Ready(verdict);
        }
        // A timer that fires too early only costs a check; resetting it with every request would cost more.
        if at < self.sleep.deadline() || self.sleep.is_elapsed() {
            self.sleep.as_mut().reset(at);
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            self.sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    const HEADER: Duration = Duration::from_secs(10);
    const KEPT: Duration = Duration::from_secs(100);
    const SEND: Duration = Duration::from_secs(1000);

    fn watch(since: Instant, header_timeout: Duration) -> Arc<Watch> {
        let settings =
            ServeSettings { header_timeout, keep_alive: KEPT, send_timeout: SEND, ..ServeSettings::default() };
        Watch::new(&settings, since)
    }

    fn verdict(watch: &Watch) -> Option<Verdict> {
        watch.due().map(|(_, verdict)| verdict)
    }

    #[test]
    fn a_head_has_its_time_from_the_beginning() {
        let since = Instant::now();
        let watch = watch(since, HEADER);
        assert_eq!(watch.due(), Some((since + HEADER, Verdict::NoHead)));
        // More bytes of the first head do not restart its timeout.
        assert!(watch.received());
        assert_eq!(watch.due(), Some((since + HEADER, Verdict::NoHead)));
        assert!(!watch.expired());
        watch.expire();
        assert!(watch.expired());
    }

    #[test]
    fn requests_have_as_long_as_they_take() {
        let watch = watch(Instant::now(), HEADER);
        let (first, second) = (watch.begin(), watch.begin());
        assert_eq!(watch.due(), None);
        assert!(!watch.received(), "what comes now is no head");
        drop(first);
        assert_eq!(watch.due(), None);
        let before = Instant::now();
        drop(second);
        let (at, verdict) = watch.due().expect("it is idle");
        assert_eq!(verdict, Verdict::Idle);
        assert!(at >= before + KEPT);
        // The next head has a timeout of its own.
        assert!(watch.received());
        let (at, verdict) = watch.due().expect("a head");
        assert_eq!(verdict, Verdict::NoHead);
        assert!(at >= before + HEADER && at < before + KEPT);
    }

    #[test]
    fn a_reader_that_takes_nothing_is_stuck() {
        let watch = watch(Instant::now(), HEADER);
        let request = watch.begin();
        watch.sent(false);
        let stuck = watch.due();
        assert_eq!(stuck.map(|(_, verdict)| verdict), Some(Verdict::Stuck));
        watch.sent(false);
        assert_eq!(watch.due(), stuck, "it counts from the first write that could not go on");
        // The end of its response is still being sent.
        drop(request);
        assert_eq!(watch.due(), stuck);
        watch.sent(true);
        assert_eq!(verdict(&watch), Some(Verdict::Idle));
    }

    #[test]
    fn requests_end_with_their_client() {
        let watch = watch(Instant::now(), HEADER);
        let request = watch.begin();
        watch.gone();
        let gone = watch.due();
        assert_eq!(gone.map(|(_, verdict)| verdict), Some(Verdict::Gone));
        watch.gone();
        assert_eq!(watch.due(), gone, "it counts from the first time that it was seen");
        drop(request);
        assert_eq!(verdict(&watch), Some(Verdict::Idle));
        // The next one, sent before its client closed, has a moment of its own.
        let _next = watch.begin();
        let at = |due: Option<(Instant, Verdict)>| due.map(|(at, _)| at);
        assert!(at(watch.due()) >= at(gone));
        assert_eq!(verdict(&watch), Some(Verdict::Gone));
    }

    #[test]
    fn frames_and_rests_of_bodies_begin_no_head() {
        let http2 = watch(Instant::now(), HEADER);
        http2.is_http2();
        assert!(!http2.received());
        assert_eq!(verdict(&http2), Some(Verdict::Idle));
        let left = watch(Instant::now(), HEADER);
        let request = left.begin();
        left.body_left();
        drop(request);
        assert!(!left.received());
        assert_eq!(verdict(&left), Some(Verdict::Idle));
    }

    #[test]
    fn a_word_of_its_own_waits_for_all_answers() {
        let watch = watch(Instant::now(), HEADER);
        assert!(watch.waits(0));
        assert!(!watch.waits(1), "a head is whole, and its request has not begun");
        let first = watch.begin();
        assert!(!watch.waits(1), "it is under way");
        assert_eq!(first.nth(), 0);
        drop(first);
        assert!(watch.waits(1) && !watch.waits(2));
        assert_eq!(watch.begin().nth(), 1);
        watch.body_left();
        assert!(!watch.waits(2), "what comes is the rest of a body");
    }

    #[tokio::test]
    async fn the_watchdog_ends_with_the_time() {
        assert_eq!(Watchdog::new(watch(Instant::now(), Duration::ZERO)).await, Verdict::NoHead);
        let serving = watch(Instant::now(), Duration::ZERO);
        let request = serving.begin();
        let mut dog = pin!(Watchdog::new(Arc::clone(&serving)));
        let is_pending = poll_fn(|cx| Poll::Ready(dog.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending, "a request is under way");
        drop(request);
        assert!(serving.received());
        assert_eq!(dog.await, Verdict::NoHead);
    }
}
