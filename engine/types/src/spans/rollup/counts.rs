//! What the rows of a roll-up count.

use super::Durations;

/// Counts of spans or calls. The default counts none.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// Number of [`super::PROTOCOLS`].
    pub protocol: u8,
    /// Spans or calls.
    pub spans: u64,
    /// Those that failed.
    pub errors: u64,
    /// First and last start, Unix nanoseconds.
    pub seen: (i64, i64),
    /// Durations.
    pub durations: Durations,
}

impl Default for Counts {
    fn default() -> Self {
        Self { protocol: 0, spans: 0, errors: 0, seen: (i64::MAX, i64::MIN), durations: Durations::default() }
    }
}

impl Counts {
    /// Adds others.
    pub fn merge(&mut self, other: &Self) {
        self.spans += other.spans;
        self.errors += other.errors;
        self.seen = (self.seen.0.min(other.seen.0), self.seen.1.max(other.seen.1));
        self.durations.merge(&other.durations);
        self.speaks(other.protocol);
    }

    /// Takes others out that were added before. First and last start stay as they are.
    pub fn remove(&mut self, other: &Self) {
        self.spans = self.spans.saturating_sub(other.spans);
        self.errors = self.errors.saturating_sub(other.errors);
        other.durations.iter().for_each(|(bucket, count)| self.durations.remove(bucket, count));
    }

    /// Notes a protocol: of several the least, so that their order does not matter.
    pub(super) fn speaks(&mut self, protocol: u8) {
        if protocol != 0 && (self.protocol == 0 || protocol < self.protocol) {
            self.protocol = protocol;
        }
    }
}
