//! Whether the memory of the process is short: told by whoever watches it, heeded by whoever is about to take more.
//!
//! Budgets of single parts (live data, queries, caches) are counted where memory is taken. What no budget counts (bodies
//! on their way in, batches between operators, what a flush works with, what the allocator keeps) shows in the process
//! only; when the sum of all is above the limit, new work waits or is refused until it is below again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// See the module. Not short unless somebody says so.
#[derive(Debug, Default)]
pub struct MemoryPressure(AtomicBool);

impl MemoryPressure {
    /// Says that the memory of the process is short, or that it is not any more.
    pub fn tell(&self, short: bool) {
        self.0.store(short, Relaxed);
    }

    /// Whether memory is short now.
    pub fn is_short(&self) -> bool {
        self.0.load(Relaxed)
    }
}
