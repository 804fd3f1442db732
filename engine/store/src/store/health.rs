//! Whether a store is working.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::Store;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::metrics::METRICS;

/// The catalog normally answers in milliseconds; if it takes longer than this, it counts as hanging.
pub(super) const CATALOG_ANSWERS: Duration = Duration::from_secs(5);

const SPOOL_FULL: &str = "the object store is behind and the spool is full";

impl Store {
    /// Fails if the store cannot take writes: there is no room, another server has taken it over, or it is closing.
    pub(super) fn takes_writes(&self) -> Result<()> {
        if self.closing.load(Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is shutting down"));
        }
        if let Some(why) = self.core.master.lost() {
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        if self.core.spool_full() {
            METRICS.spool_refused.inc();
            return Err(Error::new(ErrorKind::Unavailable, format!("{SPOOL_FULL}; try again later")));
        }
        Ok(())
    }

    /// Tells whether the store takes writes and answers queries, as far as is known without asking the catalog.
    pub fn ready(&self) -> bool {
        !self.closing.load(Relaxed) && self.standstill().is_none()
    }

    /// Describes what keeps the store from working, such as a part of it that has ended, hangs or fails repeatedly;
    /// `None` if all is well.
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

    /// Waits until another server has taken over the store, and returns the reason. Then this one takes no more writes
    /// and should be closed.
    pub async fn lost(&self) -> Error {
        self.core.master.wait().await;
        Error::new(ErrorKind::Conflict, self.core.master.lost().unwrap_or_default())
    }

    /// Messages for operators about things that they should act on, although the store is working.
    pub fn notes(&self) -> Vec<String> {
        let (clock, spool) = (self.core.clock_note.lock().clone(), self.core.spool_note.lock().clone());
        let has_no_room = self.core.spool_full().then(|| format!("writes are refused: {SPOOL_FULL}"));
        let now = self.core.settings.timer.now();
        let uploads = self.core.upload_health.note(now, "parts could not be brought to the object store");
        let objects = self.core.outbox_health.note(now, "commit objects could not be written");
        let files = self.core.clean_health.note(now, "files that nobody reads any more could not be deleted");
        let days = self.core.retention_health.note(now, "days that are due could not be dropped");
        let gone = self.core.master.gone();
        let notes = [clock, spool, gone, self.write_path.note(), has_no_room, uploads, objects, files, days];
        notes.into_iter().flatten().collect()
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
