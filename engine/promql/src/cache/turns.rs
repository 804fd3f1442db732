//! Equal queries that come at once: one is evaluated, the others wait for it and find its result (promise L6).

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_types::Millis;
use tokio::sync::MutexGuard;

use super::Key;

/// Equal queries: of one key, from one time to another.
type Equal = (Key, Millis, Millis);

/// The queries that are evaluated now.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Equal, Weak<Turn>, RandomState>>);

/// What equal queries share while one of them is evaluated.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    first: tokio::sync::Mutex<()>,
    over: AtomicBool,
}

impl Turns {
    /// Gives what a query shares with those that are equal to it.
    pub(crate) fn of(&self, key: &Key, start: Millis, end: Millis) -> Arc<Turn> {
        let mut all = self.0.lock();
        let equal = (key.clone(), start, end);
        if let Some(turn) = all.get(&equal).and_then(Weak::upgrade).filter(|turn| !turn.over.load(Acquire)) {
            return turn;
        }
        all.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        all.insert(equal, Arc::downgrade(&turn));
        turn
    }
}

impl Turn {
    /// Waits while an equal query is evaluated. `Some`: the caller is the one that is; `None`: one was.
    pub(crate) async fn wait(&self) -> Option<MutexGuard<'_, ()>> {
        let first = self.first.lock().await;
        // Who went away in the middle leaves it to the next.
        (!self.over.load(Acquire)).then_some(first)
    }

    /// Says that it was evaluated, whatever came of it: nobody waits any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Release);
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::Access;

    use super::*;

    #[tokio::test]
    async fn one_goes_first_and_the_next_when_it_is_gone() {
        let key =
            |expr: &str| Key { expr: expr.to_owned(), step_ms: 1, phase_ms: 0, lookback_ms: 1, access: Access::full() };
        let turns = Turns::default();
        let (turn, same, other) = (turns.of(&key("a"), 0, 9), turns.of(&key("a"), 0, 9), turns.of(&key("a"), 0, 8));
        assert!(Arc::ptr_eq(&turn, &same) && !Arc::ptr_eq(&turn, &other));
        let first = turn.wait().await.expect("nobody is before it");
        let second = tokio::spawn(async move { same.wait().await.is_some() });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it waits");
        // The first is cancelled: the second takes its place, and nobody ended yet.
        drop(first);
        assert!(second.await.expect("no panic"));
        let third = turn.wait().await.expect("the second is gone");
        turn.end();
        drop(third);
        assert!(turn.wait().await.is_none(), "it was evaluated");
        assert!(!Arc::ptr_eq(&turn, &turns.of(&key("a"), 0, 9)), "who comes later looks anew");
    }
}
