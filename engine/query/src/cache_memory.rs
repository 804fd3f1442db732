//! Memory of results that are cached between queries. It belongs to the same pool as the queries' memory: the cache
//! gets what queries leave, and gives it back when one needs it.

use std::sync::{Arc, Weak};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};

use crate::context::QueryReservation;
use crate::engine::QueryEngine;
use crate::pool::{Keeper, KeptPool};

/// The part of the pool that results of one kind may take.
const KEPT_PART: usize = 8;
/// Nothing is added to them beyond this part, whoever holds it.
const FULL_PART: usize = 2;

impl QueryEngine {
    /// Registers a cache that is asked to free memory when a query needs it.
    pub fn asks(&self, keeper: Weak<dyn Keeper>) {
        self.memory.keepers.lock().push(keeper);
    }

    /// Most bytes that results of one kind may take.
    pub fn kept_bytes_max(&self) -> usize {
        self.memory.size / KEPT_PART
    }

    /// Takes memory for a result that outlives its query; none: queries need it more.
    pub fn keep(&self, name: &str, bytes: usize) -> Option<QueryReservation> {
        let reserved = self.memory.pool.reserved().saturating_add(bytes);
        if self.memory.pressure.is_short() || reserved > self.memory.size / FULL_PART {
            return None;
        }
        let pool: Arc<dyn MemoryPool> = Arc::new(KeptPool(Arc::clone(&self.memory)));
        let memory = MemoryConsumer::new(name).register(&pool);
        memory.try_grow(bytes).is_ok().then(|| QueryReservation(memory))
    }
}

#[cfg(test)]
mod tests {
    use crate::{EngineSettings, QueryEngine};

    #[test]
    fn queries_come_before_what_is_kept() {
        let settings = EngineSettings::small(1 << 20);
        let engine = QueryEngine::new(&settings).unwrap();
        let held = engine.keep("a result", 400 << 10).unwrap();
        assert_eq!(engine.memory_reserved(), 400 << 10);
        assert!(engine.keep("another", 200 << 10).is_none(), "half of the pool is for queries");
        drop(held);
        assert_eq!(engine.memory_reserved(), 0);
        settings.pressure.tell(true);
        assert!(engine.keep("another", 1).is_none(), "the process is short of memory");
    }
}
