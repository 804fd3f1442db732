//! Measures write amplification. Compaction checks it before it does optional work.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes written by flushes and compactions since the start, to keep write amplification at 4 or less.
#[derive(Debug, Default)]
pub(crate) struct Amplification {
    flushed: AtomicU64,
    compacted: AtomicU64,
}

impl Amplification {
    /// Bytes that may be written beyond the ratio, so that a process that has just started is not held back.
    const GRACE: u64 = 64 << 20;
    /// Optional rewriting stops at this ratio, to stay below the promised 4.
    const OPTIONAL_MAX: f64 = 3.5;

    pub(crate) fn add_flushed(&self, bytes: u64) {
        self.flushed.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_compacted(&self, bytes: u64) {
        self.compacted.fetch_add(bytes, Relaxed);
    }

    /// Bytes that optional compaction (of late data) may still write.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let flushed = self.flushed.load(Relaxed) as f64;
        let spare = flushed * (Self::OPTIONAL_MAX - 1.0) - self.compacted.load(Relaxed) as f64;
        (spare + Self::GRACE as f64).max(0.0) as u64
    }
}
