//! Counts the output of a function while it is built row by row, for functions whose result size cannot be computed
//! from the arguments. Once complete, the output is charged like any other result.

use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use quiver_types::{Error, ErrorKind};

use super::result_memory::{BYTES_MAX, Room};
use crate::error::to_datafusion;

/// Bytes that are taken from the memory of queries at once.
const STEP: usize = 1 << 20;

/// The bytes that a call made so far, with their memory.
pub(super) struct OutputMemory<'r> {
    function: &'static str,
    room: &'r Room,
    bytes: usize,
    held: Vec<MemoryReservation>,
}

impl<'r> OutputMemory<'r> {
    /// Begins with nothing.
    pub(super) fn new(function: &'static str, room: &'r Room) -> Self {
        Self { function, room, bytes: 0, held: Vec::new() }
    }

    /// Counts bytes before they are made.
    ///
    /// # Errors
    /// A batch of rows becomes too much, or there is no memory for it.
    pub(super) fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes as i128 > BYTES_MAX {
            let text = format!("`{}` would give more than {BYTES_MAX} bytes at once", self.function);
            return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
        }
        // What is small does not count.
        while self.held.len() < self.bytes / STEP {
            self.held.push(self.room.take(STEP)?);
        }
        Ok(())
    }

    /// The bytes that it counts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts no more than these bytes: the others were given up.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
        self.held.truncate(self.bytes / STEP);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;

    #[test]
    fn what_grows_takes_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(3 * STEP));
        let room = Room::new(Arc::clone(&pool));
        let mut making = OutputMemory::new("f", &room);
        making.add(STEP / 2).unwrap();
        assert_eq!(pool.reserved(), 0);
        making.add(2 * STEP).unwrap();
        assert_eq!(pool.reserved(), 2 * STEP);
        assert!(making.add(4 * STEP).is_err());
        making.keep(STEP + 1);
        assert_eq!((making.bytes(), pool.reserved()), (STEP + 1, STEP));
        making.keep(usize::MAX);
        making.add(STEP).unwrap();
        assert_eq!((making.bytes(), pool.reserved()), (2 * STEP + 1, 2 * STEP));
        drop(making);
        assert_eq!(pool.reserved(), 0);
        let refused = OutputMemory::new("f", &room).add(usize::MAX).unwrap_err();
        assert!(refused.to_string().contains("`f` would give more than"), "{refused}");
    }
}
