//! Tells how far long work of a command has got: a backup, a restore, a check.

use std::time::{Duration, Instant};

/// How often that is told.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Work that takes steps of known sizes.
#[derive(Debug)]
pub(crate) struct Steps {
    what: &'static str,
    bytes: u64,
    done: u64,
    told: Instant,
}

impl Steps {
    /// Begins some work on so many bytes.
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

    /// What is to be told now.
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
