//! Whether the background work makes progress: names what does not, for `/health/ready`.
//!
//! A job that is retried counts as unhealthy once it has failed for a while without any success in between. Work that
//! takes long is healthy as long as it advances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many tries in a row, or so long a time, may fail before that is trouble.
const TRIES_MAX: u32 = 3;
const FAILING_MAX: Duration = Duration::from_secs(30);
/// A flush that finished no part for so long hangs.
const SILENT_MAX: Duration = Duration::from_mins(5);
/// The WAL's thread looks around each second; when it did not for so long the disk under it hangs.
const BEAT_MAX: Duration = Duration::from_secs(30);

/// What is known of the flush.
#[derive(Debug, Default)]
pub(crate) struct FlushHealth(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failing: Option<FlushFailure>,
    /// When the flush that runs got on last.
    moved: Option<Instant>,
}

#[derive(Debug)]
struct FlushFailure {
    since: Instant,
    tries: u32,
    text: String,
}

impl FlushHealth {
    /// A flush begins, or got on.
    pub(crate) fn moves(&self) {
        self.0.lock().moved = Some(Instant::now());
    }

    /// Nothing is to be flushed now.
    pub(crate) fn rests(&self) {
        self.0.lock().moved = None;
    }

    /// A generation was flushed.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = State::default();
    }

    /// A try failed, with what is to be told.
    pub(crate) fn failed(&self, text: String) {
        let mut state = self.0.lock();
        let failing =
            state.failing.get_or_insert_with(|| FlushFailure { since: Instant::now(), tries: 0, text: String::new() });
        failing.tries += 1;
        failing.text = text;
    }

    /// Says what keeps it from working.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.0.lock();
        if let Some(failing) = &state.failing
            && (failing.tries >= TRIES_MAX || failing.since.elapsed() >= FAILING_MAX)
        {
            let seconds = failing.since.elapsed().as_secs();
            return Some(format!("the flush has been failing for {seconds} s: {}", failing.text));
        }
        let silent = state.moved.map(|at| at.elapsed()).filter(|silent| *silent >= SILENT_MAX)?;
        Some(format!("the flush has got nothing done for {} s", silent.as_secs()))
    }
}

/// What is known of the disk under the WAL: writes that it refused, one after the other, and those for which it had no
/// room. The latter are no trouble but a note: queries go on, and senders are told.
///
/// Who is told that a server is not ready may send it nothing more, and only a write shows that the disk works again: so
/// refusals count for a while only.
#[derive(Debug, Clone, Default)]
pub(crate) struct WalHealth(Arc<Mutex<WalState>>);

#[derive(Debug, Default)]
struct WalState {
    failing: Option<WalFailure>,
    /// When a write was last refused for want of room, and what it was told.
    full: Option<(Instant, String)>,
}

#[derive(Debug)]
struct WalFailure {
    first: Instant,
    last: Instant,
    tries: u32,
    text: String,
}

impl WalHealth {
    /// A write failed for good, with what is to be told.
    pub(crate) fn failed(&self, text: String) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let begun = || WalFailure { first: now, last: now, tries: 0, text: String::new() };
        let failing = state.failing.get_or_insert_with(begun);
        (failing.last, failing.tries, failing.text) = (now, failing.tries + 1, text);
    }

    /// A write was refused because the disk is full, with what its sender is told.
    pub(crate) fn has_no_room(&self, text: &str) {
        self.0.lock().full = Some((Instant::now(), text.to_owned()));
    }

    /// A write succeeded.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = WalState::default();
    }

    /// Says that writes are refused for want of room.
    pub(crate) fn note(&self) -> Option<String> {
        let state = self.0.lock();
        let (_, text) = state.full.as_ref().filter(|(at, _)| at.elapsed() < FAILING_MAX)?;
        Some(format!("writes are refused: the {text}"))
    }

    /// Says what keeps it from working.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.0.lock();
        let failing = state.failing.as_ref().filter(|f| f.tries >= TRIES_MAX && f.last.elapsed() < FAILING_MAX)?;
        let seconds = failing.first.elapsed().as_secs();
        Some(format!("the write-ahead log could not be written for {seconds} s: {}", failing.text))
    }
}

/// The health of a job that is retried until it succeeds. Writes and queries go on without it for long, so its failures
/// are only noted and do not make the server unready.
#[derive(Debug, Default)]
pub(crate) struct RetryHealth(Mutex<Option<RetryFailure>>);

#[derive(Debug)]
struct RetryFailure {
    /// When the first of the consecutive failures happened, on the clock of the job.
    since: Duration,
    text: String,
}

impl RetryHealth {
    /// Records a failed try: the time on the job's clock, and the text for the note.
    pub(crate) fn failed(&self, now: Duration, text: String) {
        let mut failing = self.0.lock();
        let since = failing.as_ref().map_or(now, |failure| failure.since);
        *failing = Some(RetryFailure { since, text });
    }

    /// Notes a success, after which nothing is left to retry.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = None;
    }

    /// Returns a note if `what` has failed for long at this time of the job's clock.
    pub(crate) fn note(&self, now: Duration, what: &str) -> Option<String> {
        let failing = self.0.lock();
        let failure = failing.as_ref()?;
        let lasts = now.saturating_sub(failure.since);
        (lasts >= FAILING_MAX).then(|| format!("{what} for {} s: {}", lasts.as_secs(), failure.text))
    }
}

/// The sign of life of a thread that looks around each second.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    start: Instant,
    /// Milliseconds after the start.
    last: Arc<AtomicU64>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { start: Instant::now(), last: Arc::default() }
    }
}

impl Heartbeat {
    /// The thread lives.
    pub(crate) fn beat(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Relaxed);
    }

    /// Gives for how long it has been silent, if that is too long.
    pub(crate) fn silent(&self) -> Option<Duration> {
        let silent = self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Relaxed)));
        (silent >= BEAT_MAX).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_trouble() {
        let health = FlushHealth::default();
        health.moves();
        assert_eq!(health.trouble(), None);
        (0..2).for_each(|_| health.failed("once".into()));
        assert_eq!(health.trouble(), None, "the next try may do");
        health.failed("no such luck".into());
        assert_eq!(health.trouble().as_deref(), Some("the flush has been failing for 0 s: no such luck"));
        health.succeeded();
        assert_eq!(health.trouble(), None);
        assert_eq!(Heartbeat::default().silent(), None);
    }

    #[test]
    fn a_log_that_refuses_writes_is_trouble_for_a_while() {
        let health = WalHealth::default();
        (0..2).for_each(|_| health.failed("once".into()));
        assert_eq!(health.trouble(), None, "the next write may do");
        health.failed("no such luck".into());
        let text = "the write-ahead log could not be written for 0 s: no such luck";
        assert_eq!(health.trouble().as_deref(), Some(text));
        health.succeeded();
        assert_eq!(health.trouble(), None);
        (0..3).for_each(|_| health.failed("again".into()));
        assert!(health.trouble().is_some());
        let ago = Instant::now().checked_sub(FAILING_MAX).expect("a machine that runs for minutes");
        health.0.lock().failing.as_mut().expect("it failed").last = ago;
        assert_eq!(health.trouble(), None, "nobody has tried for long");
    }

    #[test]
    fn a_full_disk_is_noted_for_a_while() {
        let health = WalHealth::default();
        assert_eq!(health.note(), None);
        (0..4).for_each(|_| health.has_no_room("disk is full"));
        assert_eq!(health.trouble(), None, "queries go on");
        assert_eq!(health.note().as_deref(), Some("writes are refused: the disk is full"));
        let ago = Instant::now().checked_sub(FAILING_MAX).expect("a machine that runs for minutes");
        health.0.lock().full.as_mut().expect("it was full").0 = ago;
        assert_eq!(health.note(), None, "nobody has tried for long");
        health.has_no_room("disk is full");
        health.succeeded();
        assert_eq!(health.note(), None);
    }

    #[test]
    fn what_fails_for_long_and_is_tried_again_is_noted() {
        let (health, at) = (RetryHealth::default(), Duration::from_secs);
        assert_eq!(health.note(at(1000), "it failed"), None);
        health.failed(at(100), "at first".into());
        assert_eq!(health.note(at(129), "it failed"), None, "a moment is none");
        health.failed(at(129), "no such luck".into());
        assert_eq!(health.note(at(130), "it failed").as_deref(), Some("it failed for 30 s: no such luck"));
        health.succeeded();
        assert_eq!(health.note(at(131), "it failed"), None);
        health.failed(at(140), "again".into());
        assert_eq!(health.note(at(169), "it failed"), None, "it begins anew");
        assert_eq!(health.note(at(175), "it failed").as_deref(), Some("it failed for 35 s: again"));
    }

    #[test]
    fn what_hangs_is_trouble() {
        let ago = |by: Duration| Some(Instant::now().checked_sub(by).expect("a machine that runs for minutes"));
        let health = FlushHealth::default();
        health.0.lock().moved = ago(SILENT_MAX);
        assert_eq!(health.trouble().as_deref(), Some("the flush has got nothing done for 300 s"));
        health.moves();
        assert_eq!(health.trouble(), None, "it goes on");
        health.0.lock().moved = ago(SILENT_MAX);
        health.rests();
        assert_eq!(health.trouble(), None, "nothing is to be done");
        let heart = Heartbeat { start: ago(2 * BEAT_MAX).expect("known"), last: Arc::default() };
        assert!(heart.silent().is_some_and(|silent| silent >= BEAT_MAX));
        heart.beat();
        assert_eq!(heart.silent(), None);
    }
}
