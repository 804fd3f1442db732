//! Whether a store does its work.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::Store;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::metrics::METRICS;

/// The catalog answers in milliseconds; when it does not within this time it hangs.
pub(super) const CATALOG_ANSWERS: Duration = Duration::from_secs(5);

impl Store {
    /// Refuses writes while there is no room for them, or the store is another's, or closes.
    pub(super) fn takes_writes(&self) -> Result<()> {
        if self.closing.load(Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is shutting down"));
        }
        if let Some(why) = self.core.master.lost() {
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        if self.core.spool_full() {
            METRICS.spool_refused.inc();
            let text = "the object store is behind and the spool is full; try again later";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Says whether the store takes writes and answers queries, as far as is known without asking the catalog.
    pub fn ready(&self) -> bool {
        !self.closing.load(Relaxed) && self.standstill().is_none()
    }

    /// Says what keeps the store from its work, none if nothing does: a part of it that has ended, hangs, or fails
    /// again and again.
    pub async fn trouble(&self) -> Option<String> {
        if self.closing.load(Relaxed) {
            return Some("the store is shutting down".into());
        }
        if let Some(text) = self.standstill() {
            return Some(text);
        }
        match tokio::time::timeout(CATALOG_ANSWERS, self.core.catalog.last_commit()).await {
            Ok(Ok(_)) => None,
            Ok(Err(e)) => Some(chain(&e)),
            Err(_) => Some(format!("the catalog has not answered for {} s", CATALOG_ANSWERS.as_secs())),
        }
    }

    /// Waits until another server has taken the store: then this one takes no writes any more, and should be closed.
    /// Gives the reason.
    pub async fn lost(&self) -> Error {
        self.core.master.wait().await;
        Error::new(ErrorKind::Conflict, self.core.master.lost().unwrap_or_default())
    }

    /// Gives what an operator should know and do something about, in words, though nothing is ill.
    pub fn notes(&self) -> Vec<String> {
        self.core.clock_note.lock().clone().into_iter().collect()
    }

    fn standstill(&self) -> Option<String> {
        let ended = |tasks: &[(&str, JoinHandle<()>)]| {
            tasks.iter().find(|(_, task)| task.is_finished()).map(|(name, _)| format!("the {name} has ended"))
        };
        (self.core.master.lost().map(str::to_owned))
            .or_else(|| self.write_path.trouble())
            .or_else(|| ended(&self.tasks.lock()))
            .or_else(|| self.compactor.has_ended().then(|| "the compaction has ended".into()))
            .or_else(|| self.core.flush_health.trouble())
    }
}
