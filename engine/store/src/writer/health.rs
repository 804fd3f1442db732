//! Whether the write path is working.

use super::WritePath;

impl WritePath {
    /// Says why writes cannot be accepted: the WAL's thread has ended, or its disk does not respond or refuses them.
    /// `None`: all is well.
    pub(crate) fn trouble(&self) -> Option<String> {
        if self.thread.lock().as_ref().is_some_and(std::thread::JoinHandle::is_finished) {
            return Some("the thread of the write-ahead log has ended".into());
        }
        if let Some(silent) = self.heartbeat.silent() {
            return Some(format!("the write-ahead log has not answered for {} s", silent.as_secs()));
        }
        self.wal_health.trouble()
    }

    /// Says why writes are refused, though the store works: its disk is full.
    pub(crate) fn note(&self) -> Option<String> {
        self.wal_health.note()
    }
}
