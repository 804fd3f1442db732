//! When and how often requests are retried: exponential backoff with jitter, a time limit for each operation, and a
//! common budget, so that retries never multiply the load on a store that is down (promise F4).

use std::time::Duration;

use parking_lot::Mutex;

use crate::timer::Timer;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of retries in the budget.
const BUDGET_MAX: f64 = 100.0;
/// What a success adds to the budget.
const BUDGET_PER_SUCCESS: f64 = 0.5;

/// The retry budget that all operations share.
#[derive(Debug)]
pub(super) struct Retries {
    /// What is left, and when that was computed.
    budget: Mutex<(f64, Duration)>,
    timer: Timer,
}

impl Retries {
    pub(super) fn new(timer: Timer) -> Self {
        Self { budget: Mutex::new((BUDGET_MAX, timer.now())), timer }
    }

    /// Starts an operation.
    pub(super) fn begin(&self, limit: Duration) -> RetryState<'_> {
        RetryState { retries: self, started: self.timer.now(), limit, next: FIRST_PAUSE }
    }

    /// Adds to the budget after a success.
    pub(super) fn succeeded(&self) {
        let mut budget = self.budget.lock();
        budget.0 = (budget.0 + BUDGET_PER_SUCCESS).min(BUDGET_MAX);
    }

    fn take(&self) -> bool {
        let mut budget = self.budget.lock();
        // One retry per second is always allowed; otherwise an empty budget would outlive the outage.
        let now = self.timer.now();
        budget.0 = (budget.0 + now.saturating_sub(budget.1).as_secs_f64()).min(BUDGET_MAX);
        budget.1 = now;
        if budget.0 < 1.0 {
            return false;
        }
        budget.0 -= 1.0;
        true
    }
}

/// One operation with its retries.
#[derive(Debug)]
pub(super) struct RetryState<'a> {
    retries: &'a Retries,
    started: Duration,
    limit: Duration,
    next: Duration,
}

impl RetryState<'_> {
    /// Waits before the next retry; `false` if the time or the budget is used up.
    pub(super) async fn wait(&mut self) -> bool {
        let Some(pause) = self.pause() else { return false };
        self.retries.timer.sleep(pause).await;
        true
    }

    fn pause(&mut self) -> Option<Duration> {
        let pause = jitter(self.next);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        (self.retries.timer.now().saturating_sub(self.started) + pause <= self.limit && self.retries.take())
            .then_some(pause)
    }
}

/// A random share of a pause, so that clients that failed together do not retry together.
pub(crate) fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.1..1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_and_time_end_repeats() {
        let retries = Retries::new(Timer::default());
        assert_eq!(retries.begin(Duration::ZERO).pause(), None, "no time");
        let mut run = retries.begin(Duration::from_hours(1));
        let repeats = std::iter::from_fn(|| run.pause()).take(1000).count();
        assert!((95..=105).contains(&repeats), "{repeats}");
        for _ in 0..4 {
            retries.succeeded();
        }
        assert!(retries.begin(Duration::from_hours(1)).pause().is_some());
    }
}
