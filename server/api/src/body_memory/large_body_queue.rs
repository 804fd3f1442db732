//! A queue for large bodies. If several grew at the same time, each would get a piece of the memory for bodies, and none
//! all that it needs.
//!
//! So a body of more than a sixteenth of that memory first waits until twice its size is available, for the body and its
//! decompressed form. Bodies are served in order of arrival. While it waits, a body holds only its first bytes, which
//! come from the budget of small bodies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a body waits for its turn, and for memory while it has it. One that takes longer to arrive lets others in.
/// Unit tests wait as long as for other memory.
pub(super) const TURN_WAIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// Most bodies that wait at once, each with the piece that came last.
const WAITING_MAX: usize = 64;
/// How much of the memory for bodies one may have without a turn, if its length is stated, and if it is not.
const SHARE_WITHOUT: [usize; 2] = [16, 64];
/// How many times its own size a body needs.
const NEEDED: usize = 2;

tokio::task_local! {
    /// Whether the connection of the request at hand carries others beside it.
    static SHARED: bool;
}

/// Answers a request, whose connection may carry others beside it, as those of HTTP/2 do. Bodies of such a one do not wait
/// for their turn: what comes of a body that is not read takes the window of all, and they would stand still with it,
/// also the one that has the turn.
pub(crate) async fn on_connection<F: Future>(is_shared: bool, answer: F) -> F::Output {
    SHARED.scope(is_shared, answer).await
}

fn is_shared() -> bool {
    SHARED.try_with(|shared| *shared).unwrap_or(false)
}

/// The queue of large bodies: units of memory, and places to wait.
#[derive(Debug, Clone)]
pub(super) struct LargeBodyQueue {
    units: Arc<Semaphore>,
    places: Arc<Semaphore>,
    all: usize,
}

impl LargeBodyQueue {
    /// Makes turns for so many units in all.
    pub(super) fn new(all: usize) -> Self {
        Self { units: Arc::new(Semaphore::new(all)), places: Arc::new(Semaphore::new(WAITING_MAX)), all }
    }

    /// Says whether a body of so many units needs a turn. One without a length has part of it in memory when it waits, so
    /// it waits early.
    pub(super) fn is_needed(&self, units: usize, is_stated: bool) -> bool {
        units > self.all / SHARE_WITHOUT[usize::from(!is_stated)]
    }

    /// Waits for the turn of a body of so many units; none: it did not come in time, or too many wait.
    pub(super) async fn wait(&self, units: usize) -> Option<Turn> {
        let _place = self.places.try_acquire().ok()?;
        let units = units.saturating_mul(NEEDED).min(self.all);
        let turns = Arc::clone(&self.units);
        let permit = if is_shared() {
            turns.try_acquire_many_owned(units as u32).ok()?
        } else {
            tokio::time::timeout(TURN_WAIT, turns.acquire_many_owned(units as u32)).await.ok()?.ok()?
        };
        Some(Turn::Now { permit, since: Instant::now() })
    }
}

/// How far a body is with its turn.
#[derive(Debug, Default)]
pub(super) enum Turn {
    /// It has needed none so far.
    #[default]
    NotYet,
    /// It has it, since then; others get it when this is dropped.
    Now { permit: OwnedSemaphorePermit, since: Instant },
    /// It had it, and took too long.
    Over,
}

impl Turn {
    pub(super) fn is_now(&self) -> bool {
        matches!(self, Self::Now { .. })
    }

    /// Lets others in where a body that is there needs no more than so many units beside what it holds.
    pub(super) fn keep(&mut self, units: usize) {
        if let Self::Now { permit, .. } = self {
            let beyond = permit.num_permits().saturating_sub(units);
            drop(permit.split(beyond));
        }
    }

    /// Lets others in when the body takes long to arrive; what it holds it keeps. Says whether it has had a turn.
    pub(super) fn pass_on(&mut self) -> bool {
        if matches!(self, Self::Now { since, .. } if since.elapsed() > TURN_WAIT) {
            *self = Self::Over;
        }
        !matches!(self, Self::NotYet)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn first_come_first_served() {
        let turns = LargeBodyQueue::new(160);
        assert_eq!([10, 11].map(|units| turns.is_needed(units, true)), [false, true]);
        assert_eq!([2, 3].map(|units| turns.is_needed(units, false)), [false, true]);
        let first = turns.wait(50).now_or_never().flatten().expect("there is room");
        let large = turns.wait(60);
        let small = turns.wait(20);
        tokio::pin!(large, small);
        assert!(large.as_mut().now_or_never().is_none(), "100 of 160 are taken");
        assert!(small.as_mut().now_or_never().is_none(), "there is room for it, and another came before");
        drop(first);
        let large = large.now_or_never().flatten().expect("its turn");
        let small = small.now_or_never().flatten().expect("and there is room for this one, too");
        assert!(large.is_now() && small.is_now());
        drop((large, small));
        // One that is larger than all there is has it alone, until it is there.
        let mut alone = turns.wait(1 << 40).now_or_never().flatten().expect("there is room");
        assert!(turns.wait(1).now_or_never().is_none());
        alone.keep(158);
        alone.keep(200);
        assert!(turns.wait(2).now_or_never().is_none(), "two of four are free");
        assert!(turns.wait(1).now_or_never().flatten().is_some_and(|turn| turn.is_now()));
        drop(alone);
        assert!(turns.wait(1 << 40).now_or_never().flatten().is_some_and(|turn| turn.is_now()));
    }

    #[tokio::test]
    async fn not_everybody_may_wait() {
        let turns = LargeBodyQueue::new(16);
        let held = turns.wait(16).now_or_never().flatten();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(turns.wait(2))).collect();
        assert!(waiting.iter_mut().all(|waits| waits.now_or_never().is_none()));
        assert!(turns.wait(2).now_or_never().expect("it is told at once").is_none());
        drop((held, waiting));
        tokio::task::yield_now().await;
        assert!(turns.wait(2).now_or_never().flatten().is_some(), "all was given back");
    }

    #[test]
    fn turns_pass_on() {
        let mut turn = Turn::default();
        assert!(!turn.pass_on() && !turn.is_now());
        let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().expect("one");
        turn = Turn::Now { permit: permit(), since: Instant::now() };
        assert!(turn.pass_on() && turn.is_now());
        let before = Instant::now().checked_sub(2 * TURN_WAIT).expect("a time before");
        turn = Turn::Now { permit: permit(), since: before };
        assert!(turn.pass_on() && !turn.is_now());
        assert!(turn.pass_on(), "it gets no other one");
    }
}
