//! One memory pool for all queries, and the share of one query in it.
//!
//! A query may hold twice what is free besides: one alone gets two thirds of the pool, each of n gets 2 / (2 n + 1), and
//! there is always something left for the next one. A small amount is let through as long as the pool has it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use quiver_types::MemoryPressure;

/// A query may hold this many times what is free besides.
const TIMES_FREE: usize = 2;
/// This part of the pool is no question of shares.
const SMALL_PART: usize = 64;

/// Bounds one query; asks the shared pool for what it lends.
#[derive(Debug)]
pub(crate) struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    size: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    max: usize,
    pressure: Arc<MemoryPressure>,
}

impl QueryPool {
    /// Makes the share of a query in a pool of `size` bytes; it may never hold more than `max`.
    pub(crate) fn new(shared: Arc<dyn MemoryPool>, size: usize, max: usize, pressure: Arc<MemoryPressure>) -> Self {
        Self { shared, size, used: AtomicUsize::new(0), peak: AtomicUsize::new(0), max, pressure }
    }

    /// The share of functions, which do not know for which query they are called: all of them together have what one query
    /// may have.
    pub(crate) fn of_functions(shared: &Arc<dyn MemoryPool>, size: usize, pressure: &Arc<MemoryPressure>) -> Arc<Self> {
        Arc::new(Self::new(Arc::clone(shared), size, size, Arc::clone(pressure)))
    }

    /// Bytes held now, and the most that ever were.
    pub(crate) fn used_and_peak(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.peak.load(Relaxed))
    }

    /// Says how much a query may hold when it grows by so much.
    fn share(&self, additional: usize) -> usize {
        let free = self.size.saturating_sub(self.shared.reserved().saturating_add(additional));
        self.max.min(free.saturating_mul(TIMES_FREE).max(self.size / SMALL_PART))
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query({} of {})", self.used.load(Relaxed), self.max)
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &'static str {
        "query"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shared.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shared.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let used = self.used.fetch_add(additional, Relaxed) + additional;
        self.peak.fetch_max(used, Relaxed);
        self.shared.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Relaxed);
        self.shared.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let used = self.used.fetch_add(additional, Relaxed) + additional;
        let share = self.share(additional);
        let lent = if self.pressure.is_short() && used > self.size / SMALL_PART {
            let text = format!("the process is at its memory limit, and the query holds {used} bytes");
            Err(DataFusionError::ResourcesExhausted(text))
        } else if used > share {
            let text = format!("the query holds {used} bytes, more than its share of {share}");
            Err(DataFusionError::ResourcesExhausted(text))
        } else {
            self.shared.try_grow(reservation, additional)
        };
        if lent.is_err() {
            self.used.fetch_sub(additional, Relaxed);
        } else {
            self.peak.fetch_max(used, Relaxed);
        }
        lent
    }

    fn reserved(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.max.min(self.size))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::FairSpillPool;

    use super::*;

    #[test]
    fn there_is_always_something_left() {
        let shared: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(6400));
        let mut held = Vec::new();
        for n in 1..=3 {
            let pool = QueryPool::new(Arc::clone(&shared), 6400, 6400, Arc::default());
            let pool: Arc<dyn MemoryPool> = Arc::new(pool);
            let memory = MemoryConsumer::new("query").register(&pool);
            while memory.try_grow(10).is_ok() {}
            if n == 1 {
                assert!((4200..=4300).contains(&memory.size()), "{}", memory.size());
            }
            assert!(memory.size() >= 100, "query {n} gets {}", memory.size());
            held.push(memory);
        }
        drop(held);
        assert_eq!(shared.reserved(), 0);
        let bounded: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(shared, 6400, 1000, Arc::default()));
        let memory = MemoryConsumer::new("query").register(&bounded);
        assert!(memory.try_grow(1000).is_ok() && memory.try_grow(1).is_err());
    }

    #[test]
    fn little_is_lent_while_the_process_is_short_of_memory() {
        let pressure = Arc::new(MemoryPressure::default());
        let shared: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(6400));
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(shared, 6400, 6400, Arc::clone(&pressure)));
        let memory = MemoryConsumer::new("query").register(&pool);
        pressure.tell(true);
        assert!(memory.try_grow(100).is_ok() && memory.try_grow(1).is_err());
        pressure.tell(false);
        assert!(memory.try_grow(1).is_ok());
    }
}
