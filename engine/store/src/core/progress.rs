//! Progress of background work, and those who wait for it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};

/// Wakes those who wait for background work whenever some of it is done.
#[derive(Debug)]
pub(crate) struct Progress(watch::Sender<u64>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Progress {
    /// Wakes all waiters.
    pub(crate) fn bump(&self) {
        self.0.send_modify(|n| *n += 1);
    }

    /// Waits until `done` gives true; it is asked at each [`Self::bump`]. Fails when there was none for `stall`.
    pub(crate) async fn wait<F, Fut>(&self, what: &str, stall: Duration, mut done: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<bool>>,
    {
        let mut watch = self.0.subscribe();
        loop {
            watch.mark_unchanged();
            if done().await? {
                return Ok(());
            }
            if tokio::time::timeout(stall, watch.changed()).await.is_err() {
                let text = format!("{what} makes no progress; the log says why");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }
}
