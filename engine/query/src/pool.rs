//! One memory pool for all queries, and the share of one query in it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// Bounds one query; asks the shared pool for what it lends.
#[derive(Debug)]
pub(crate) struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    used: AtomicUsize,
    max: usize,
}

impl QueryPool {
    pub(crate) fn new(shared: Arc<dyn MemoryPool>, max: usize) -> Self {
        Self { shared, used: AtomicUsize::new(0), max }
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
        self.used.fetch_add(additional, Relaxed);
        self.shared.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Relaxed);
        self.shared.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let used = self.used.fetch_add(additional, Relaxed) + additional;
        let lent = if used > self.max {
            let text = format!("the query holds {used} bytes, more than its {}", self.max);
            Err(DataFusionError::ResourcesExhausted(text))
        } else {
            self.shared.try_grow(reservation, additional)
        };
        if lent.is_err() {
            self.used.fetch_sub(additional, Relaxed);
        }
        lent
    }

    fn reserved(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.max)
    }
}
