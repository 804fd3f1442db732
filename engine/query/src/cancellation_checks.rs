//! Cancellation of work between batches: long loops call in regularly to check whether their query goes on (promise
//! L5).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use quiver_types::Result;

use crate::context::QueryContext;

/// Units of work between two questions: a millisecond of work, more or less.
const UNITS: usize = 1 << 16;

/// Counts work; shared by the threads of a query.
#[derive(Debug)]
pub struct Pace {
    ctx: QueryContext,
    phase: &'static str,
    done: AtomicUsize,
}

impl Pace {
    /// Begins to count for a query; `phase` is what errors say.
    pub fn new(ctx: &QueryContext, phase: &'static str) -> Self {
        Self { ctx: ctx.clone(), phase, done: AtomicUsize::new(0) }
    }

    /// Asks now.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub fn check(&self) -> Result<()> {
        self.ctx.check(self.phase)
    }

    /// Says that so much is about to be done; a unit is a row looked at, a value computed, some ten bytes of text. Call it
    /// for pieces of work, not for each unit.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub fn did(&self, units: usize) -> Result<()> {
        let before = self.done.fetch_add(units, Relaxed);
        if before / UNITS == before.wrapping_add(units) / UNITS { Ok(()) } else { self.ctx.check(self.phase) }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::Access;

    use super::*;
    use crate::Limits;

    #[test]
    fn asks_now_and_then() {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let pace = Pace::new(&ctx, "a test");
        assert!(pace.did(UNITS - 2).is_ok());
        ctx.cancel.cancel();
        assert!(pace.did(1).is_ok(), "not yet");
        assert_eq!(pace.did(1).unwrap_err().message, "query was canceled in a test");
        assert!(pace.did(1).is_ok() && pace.did(UNITS).is_err());
    }
}
