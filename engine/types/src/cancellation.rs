//! Cancellation within the work on a single value, such as a regular expression over a long text. Such code is called
//! from deep within an operator and knows no query, so it finds the query through the thread that it runs on.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::read_stats::Gate;
use crate::{Error, ErrorKind, Result};

/// Steps that a thread does between two questions: at most some hundredths of a second where each is slow.
const STEPS_MAX: usize = 1 << 22;

/// How long a stored rule may look at texts in one go, be it one record or many: many times what it may take on average
/// before it is left out.
pub const RULE_MAX: Duration = Duration::from_millis(500);

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Whom work asks whether it may go on, and whether it was told to stop. What stopped work says is worth nothing:
/// whoever runs it drops it, as [`Self::is_stopped`] tells.
#[derive(Debug, Clone)]
pub struct Watch(Arc<WatchState>);

/// What all handles of a watch share: one of them is taken for each piece of work, such as a span.
#[derive(Debug)]
struct WatchState {
    gate: Arc<dyn Gate>,
    stopped: AtomicBool,
}

impl Watch {
    /// Watches the work of a run of a query.
    pub fn new(gate: Arc<dyn Gate>) -> Self {
        Self(Arc::new(WatchState { gate, stopped: AtomicBool::default() }))
    }

    /// The watch under which this thread works.
    pub fn current() -> Option<Self> {
        WATCH.with_borrow(Clone::clone)
    }

    /// Gives whom it asks.
    pub fn gate(&self) -> &dyn Gate {
        &*self.0.gate
    }

    /// Says whether some of its work was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Relaxed)
    }

    /// Does work on this thread, to which it must not give way.
    pub fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = Before(WATCH.replace(Some(self.clone())));
        work()
    }

    fn asks(&self) -> bool {
        if !self.is_stopped() && self.0.gate.check().is_err() {
            self.0.stopped.store(true, Relaxed);
        }
        !self.is_stopped()
    }
}

/// The end of work that no query waits for, such as stored rules over what comes in: it lasts no longer than a time from
/// the moment on that it begins to be long.
#[derive(Debug)]
pub struct Until {
    time: Duration,
    /// When it asked for the first time.
    first: OnceLock<Instant>,
    /// When it began to be long, in nanoseconds from there; none: not yet.
    began: AtomicU64,
}

/// Does what stored rules do in one go. None: it took longer than [`RULE_MAX`], and was stopped.
pub fn in_one_go<T>(work: impl FnOnce() -> T) -> Option<T> {
    let watch = Watch::new(Until::new(RULE_MAX));
    let done = watch.over(work);
    (!watch.is_stopped()).then_some(done)
}

/// Stands in `Until::began` for work that is not long yet.
const NOT_YET: u64 = u64::MAX;

impl Until {
    /// Lets work go on for so long.
    pub fn new(time: Duration) -> Arc<Self> {
        Arc::new(Self { time, first: OnceLock::new(), began: AtomicU64::new(NOT_YET) })
    }

    /// Goes on to other work, which has as much time.
    pub fn restart(&self) {
        self.began.store(NOT_YET, Relaxed);
    }
}

impl Gate for Until {
    fn take(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> Result<()> {
        let now = self.first.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        let began = self.began.load(Relaxed);
        if began == NOT_YET {
            self.began.store(now, Relaxed);
        } else if u128::from(now.saturating_sub(began)) > self.time.as_nanos() {
            return Err(Error::new(ErrorKind::Timeout, "it takes too long"));
        }
        Ok(())
    }
}

/// The watch under which the thread worked before.
struct Before(Option<Watch>);

impl Drop for Before {
    fn drop(&mut self) {
        WATCH.set(self.0.take());
    }
}

/// Says that so many steps are about to be done, some nanoseconds each, and gives whether to do them. Call it for pieces
/// of work, not for each step.
pub fn goes_on(steps: usize) -> bool {
    let done = STEPS.get().saturating_add(steps);
    if done < STEPS_MAX {
        STEPS.set(done);
        return true;
    }
    let goes_on = WATCH.with_borrow(|watch| watch.as_ref().is_none_or(Watch::asks));
    // Stopped work has many values left as a rule: each of them asks, and none is worked on.
    STEPS.set(if goes_on { 0 } else { STEPS_MAX });
    goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Ended(AtomicBool);

    impl Gate for Ended {
        fn take(&self, _: usize) -> Result<()> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}

        fn check(&self) -> Result<()> {
            if self.0.load(Relaxed) { Err(Error::new(ErrorKind::Cancelled, "it ended")) } else { Ok(()) }
        }
    }

    #[test]
    fn work_of_a_query_that_ended_stops_and_no_other() {
        let gate = Arc::new(Ended::default());
        let watch = Watch::new(Arc::clone(&gate) as _);
        assert!(watch.over(|| goes_on(STEPS_MAX)));
        gate.0.store(true, Relaxed);
        assert!(watch.over(|| goes_on(1)), "not asked yet");
        assert!(watch.over(|| !goes_on(STEPS_MAX) && !goes_on(1)) && watch.is_stopped());
        let other = Watch::new(Arc::new(Ended::default()));
        assert!(watch.over(|| other.over(|| goes_on(STEPS_MAX)) && !goes_on(STEPS_MAX)));
        assert!(Watch::current().is_none() && goes_on(STEPS_MAX) && !other.is_stopped());
    }

    #[test]
    fn what_is_done_in_one_go_ends() {
        assert_eq!(in_one_go(|| 7), Some(7));
        let endless = || while goes_on(STEPS_MAX) {};
        assert_eq!(in_one_go(endless), None);
        assert_eq!(in_one_go(|| goes_on(1)), Some(true), "the next one is not stopped");
    }

    #[test]
    fn work_of_nobody_ends_after_its_time() {
        let until = Until::new(Duration::ZERO);
        let watch = Watch::new(Arc::clone(&until) as _);
        let long = || goes_on(STEPS_MAX);
        assert!(watch.over(long), "it begins to be long");
        until.restart();
        assert!(watch.over(long), "other work");
        while watch.over(long) {}
        assert!(watch.is_stopped());
        let patient = Watch::new(Until::new(Duration::MAX) as _);
        assert!(patient.over(|| long() && long()) && !patient.is_stopped());
    }
}
