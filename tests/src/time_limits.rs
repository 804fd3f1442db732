//! Checks of time limits, and comparisons that depend on time, on machines that may pause at any moment.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures::FutureExt as _;

/// How often something is tried before it counts as wrong.
const TRIES: usize = 4;
/// Longest wait for what comes by itself.
const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until something holds; gives how long that took.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// Measures a time until it is below its bound. What is late for a reason of its own is late each time; what is late
/// because its machine served somebody else is not.
pub async fn within(what: &str, bound: Duration, mut measure: impl AsyncFnMut() -> Duration) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        best = best.min(measure().await);
        if best < bound {
            return best;
        }
    }
    panic!("{what}: {best:?} at best, of {TRIES} tries");
}

/// Measures an amount, of memory or of processor time, until it is below its bound. What is taken for a reason of its own
/// is taken each time; what something in the background took meanwhile is not.
pub async fn at_most<T: Copy + PartialOrd + Debug>(what: &str, bound: T, mut measure: impl AsyncFnMut() -> T) -> T {
    let mut last = measure().await;
    for _ in 1..TRIES {
        if last <= bound {
            break;
        }
        last = measure().await;
    }
    assert!(last <= bound, "{what}: {last:?}, and no less in {TRIES} tries; at most {bound:?}");
    last
}

/// Like [`within`], for what waits for nobody.
pub fn within_here(what: &str, bound: Duration, mut measure: impl FnMut() -> Duration) -> Duration {
    // Nothing in it waits, so it is over at the first look.
    within(what, bound, async || measure()).now_or_never().expect("nothing waits")
}

/// Plays a scenario in which we and another program do the same by clocks of our own, until both come to the same. Where
/// we differ from the other one we do so each time; where one of both stood still the next try tells.
#[allow(clippy::print_stderr, reason = "the report of the panic is there already, and this says what it means")]
pub async fn one_holds(scenario: impl AsyncFn()) {
    for left in (0..TRIES).rev() {
        match AssertUnwindSafe(Box::pin(scenario())).catch_unwind().await {
            Ok(()) => return,
            Err(panic) if left == 0 => resume_unwind(panic),
            Err(_) => eprintln!("it is played once more, {left} times at most"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn one_of_several_times_is_enough() {
        let mut times = [9, 7, 3, 1].map(Duration::from_secs).into_iter();
        let best = within("a time", Duration::from_secs(5), async || times.next().expect("a time")).await;
        assert_eq!((best, times.len()), (Duration::from_secs(3), 1));
        assert_eq!(within_here("a time", Duration::from_secs(5), || times.next().expect("a time")).as_secs(), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "a time: 5s at best, of 4 tries")]
    async fn what_is_late_each_time_is_late() {
        within("a time", Duration::from_secs(5), async || Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn one_of_several_amounts_is_enough() {
        let mut amounts = [9, 7, 5, 1].into_iter();
        assert_eq!(at_most("bytes", 5, async || amounts.next().expect("an amount")).await, 5);
        assert_eq!(amounts.len(), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "bytes: 6, and no less in 4 tries; at most 5")]
    async fn what_is_too_much_each_time_is_too_much() {
        at_most("bytes", 5, async || 6).await;
    }

    #[tokio::test]
    async fn a_scenario_has_to_hold_once() {
        let played = Cell::new(0);
        one_holds(async || {
            played.set(played.get() + 1);
            assert!(played.get() == TRIES, "not yet");
        })
        .await;
        assert_eq!(played.get(), TRIES);
    }

    #[tokio::test]
    #[should_panic(expected = "never")]
    async fn a_scenario_that_never_holds_fails() {
        let holds = Cell::new(false);
        one_holds(async || assert!(holds.get(), "never")).await;
    }
}
