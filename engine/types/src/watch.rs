//! Work within one value that no batch bounds, such as a regular expression over a long text: whoever does it is called
//! from deep within an operator and knows no query, so the thread knows for whom it works.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::stats::Gate;

/// Steps that a thread does between two questions: at most some hundredths of a second where each is slow.
const STEPS_MAX: usize = 1 << 22;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Whom work asks whether it may go on, and whether it was told to stop. What stopped work says is worth nothing:
/// whoever runs it drops it, as [`Self::is_stopped`] tells.
#[derive(Debug, Clone)]
pub struct Watch {
    gate: Arc<dyn Gate>,
    stopped: Arc<AtomicBool>,
}

impl Watch {
    /// Watches the work of a run of a query.
    pub fn new(gate: Arc<dyn Gate>) -> Self {
        Self { gate, stopped: Arc::default() }
    }

    /// For whom this thread works.
    pub fn current() -> Option<Self> {
        WATCH.with_borrow(Clone::clone)
    }

    /// Says whether some of its work was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Does work on this thread, to which it must not give way.
    pub fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = Before(WATCH.replace(Some(self.clone())));
        work()
    }

    fn asks(&self) -> bool {
        if !self.is_stopped() && self.gate.check().is_err() {
            self.stopped.store(true, Relaxed);
        }
        !self.is_stopped()
    }
}

/// For whom the thread worked before.
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
    use crate::{Error, ErrorKind, Result};

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
}
