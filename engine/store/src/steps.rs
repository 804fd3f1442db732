//! Tells how far long work of a command has got: a backup, a restore, a check.

use std::time::{Duration, Instant};

/// Interval between two log lines.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The progress of long work, in bytes, which is logged from time to time.
#[derive(Debug)]
pub(crate) struct Steps {
    what: &'static str,
    bytes: u64,
    done: u64,
    told: Instant,
}

impl Steps {
    /// Begins the progress report of work on so many bytes.
    pub(crate) fn new(what: &'static str, bytes: u64) -> Self {
        Self { what, bytes, done: 0, told: Instant::now() }
    }

    /// Adds to the bytes that are done, and logs the progress if it is due.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(text) = self.due() {
            tracing::info!("{text}");
        }
    }

    /// The next log line, if it is due.
    fn due(&mut self) -> Option<String> {
        if self.told.elapsed() < TOLD_EVERY {
            return None;
        }
        self.told = Instant::now();
        Some(format!("{}: {} of {} MiB", self.what, self.done >> 20, self.bytes >> 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_tells_how_far_it_is() {
        let mut steps = Steps::new("restored", 7 << 20);
        steps.advance(5 << 20);
        assert_eq!(steps.due(), None, "it has just begun");
        steps.told = Instant::now().checked_sub(TOLD_EVERY).expect("a machine that runs for a while");
        assert_eq!(steps.due().as_deref(), Some("restored: 5 of 7 MiB"));
        assert_eq!(steps.due(), None, "it was told");
    }
}
