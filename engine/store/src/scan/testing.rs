//! Stand-ins for the run of a plan, for tests that read scans without an engine.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use quiver_types::scan::{ScanCounters, ScanMemory};
use quiver_types::{Error, ErrorKind, Result};

/// The memory of a query that may have so many bytes.
#[derive(Debug)]
pub(crate) struct Within {
    most: usize,
    taken: AtomicUsize,
    highest: AtomicUsize,
}

impl Within {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), highest: AtomicUsize::new(0) }
    }

    /// What is taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// The most that was asked for at once, also where it was refused.
    pub(crate) fn highest(&self) -> usize {
        self.highest.load(Relaxed)
    }
}

impl ScanMemory for Within {
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.try_resize(self.taken() + bytes)
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        self.highest.fetch_max(bytes, Relaxed);
        if bytes > self.most {
            return Err(Error::new(ErrorKind::LimitExceeded, "it is too much"));
        }
        self.taken.store(bytes, Relaxed);
        Ok(())
    }

    fn free(&self) {
        self.taken.store(0, Relaxed);
    }
}

/// Counts nothing of what is read.
#[derive(Debug)]
pub(crate) struct Uncounted;

impl ScanCounters for Uncounted {
    fn worked(&self, _: Duration) {}

    fn add(&self, _: &[(&'static str, u64)]) {}
}
