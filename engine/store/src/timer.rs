//! How background work waits between retries: by the machine's monotonic clock, or in tests by a clock that the test
//! advances, so that an hour without the object store does not take an hour.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A monotonic clock to wait by. Clones share the time.
#[derive(Debug, Clone, Default)]
pub struct Timer(Option<Arc<watch::Sender<Duration>>>);

impl Timer {
    /// A clock for tests that stands still until [`Self::advance`] moves it.
    pub fn moved_by_hand() -> Self {
        Self(Some(Arc::new(watch::Sender::new(Duration::ZERO))))
    }

    /// Gives the time since an arbitrary but fixed moment.
    pub(crate) fn now(&self) -> Duration {
        self.0.as_ref().map_or_else(|| BEGAN.elapsed(), |time| *time.borrow())
    }

    /// Waits for this long on the clock; on a clock for tests, until the test has advanced it that far.
    pub(crate) async fn sleep(&self, pause: Duration) {
        let Some(time) = &self.0 else { return tokio::time::sleep(pause).await };
        let until = *time.borrow() + pause;
        // The sender is ours, so it does not go before us.
        let _ = time.subscribe().wait_for(|now| *now >= until).await;
    }

    /// Advances a clock for tests.
    ///
    /// # Panics
    /// If it is the machine's clock.
    pub fn advance(&self, by: Duration) {
        self.0.as_ref().expect("a time that is moved by hand").send_modify(|now| *now += by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_stands_still_until_it_is_moved() {
        let timer = Timer::moved_by_hand();
        let sleeper = tokio::spawn({
            let timer = timer.clone();
            async move { timer.sleep(Duration::from_hours(1)).await }
        });
        tokio::task::yield_now().await;
        timer.advance(Duration::from_secs(3599));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        timer.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
        assert_eq!(timer.now(), Duration::from_hours(1));
        let real = Timer::default();
        let before = real.now();
        real.sleep(Duration::from_millis(5)).await;
        assert!(real.now() >= before + Duration::from_millis(5));
    }
}
