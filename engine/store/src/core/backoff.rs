//! Pauses between attempts.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Core;
use crate::object::jitter;
use crate::timer::Timer;

/// Back-off between retries of background work: doubled each time, with jitter.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
    timer: Timer,
}

impl Backoff {
    pub(crate) fn new(core: &Core) -> Self {
        let timer = core.settings.timer.clone();
        Self { next: Duration::from_millis(200), longest: Duration::from_secs(20), timer }
    }

    /// Waits for the next pause; gives false if the store closes meanwhile.
    pub(crate) async fn pause(&mut self, stop: &CancellationToken) -> bool {
        let pause = jitter(self.next);
        self.next = (self.next * 2).min(self.longest);
        tokio::select! {
            () = stop.cancelled() => false,
            () = self.timer.sleep(pause) => true,
        }
    }
}
