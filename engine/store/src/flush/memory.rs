//! Counts the memory of flushes and compactions with that of ingest, so that writes wait instead of adding to it. A flush
//! itself never waits, because only a flush frees what writes wait for. A compaction frees nothing and may take minutes,
//! so no write is refused because of one.

use std::sync::Arc;

use crate::memtable::Generation;
use crate::registry::{Registry, Work};

/// Bytes per series: a part's table of them is complete before it is written (`part/series_file`), with some twenty labels
/// each and its share of the index.
pub(crate) const SERIES_BYTES: usize = 192;

/// What a flush or a compaction takes, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct FlushMemory {
    registry: Arc<Registry>,
    work: Work,
    bytes: usize,
}

impl FlushMemory {
    /// Counts what writing a generation takes at most: columns and encoded pages of a row group, which may be all that it
    /// holds, and the table of its series.
    pub(super) fn of(generation: &Generation) -> Self {
        let series = generation.series().saturating_mul(SERIES_BYTES);
        Self::new(generation.registry(), Work::Flush, generation.bytes().saturating_add(series))
    }

    /// Counts so many bytes.
    pub(crate) fn new(registry: &Arc<Registry>, work: Work, bytes: usize) -> Self {
        registry.add_work_bytes(work, bytes);
        Self { registry: Arc::clone(registry), work, bytes }
    }
}

impl Drop for FlushMemory {
    fn drop(&mut self) {
        self.registry.sub_work_bytes(self.work, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::memtable::GenerationId;

    #[test]
    fn it_counts_as_long_as_the_flush_runs() {
        let registry = Arc::<Registry>::default();
        let id = GenerationId { writer: Uuid::now_v7(), number: 1 };
        let generation = Generation::new(id, 1, Arc::clone(&registry));
        let first = FlushMemory::of(&generation);
        assert_eq!(registry.flush_bytes(), generation.bytes());
        let second = FlushMemory::new(&registry, Work::Flush, 1000);
        let merging = FlushMemory::new(&registry, Work::Compaction, 50);
        assert_eq!((registry.flush_bytes(), registry.compaction_bytes()), (generation.bytes() + 1000, 50));
        drop(first);
        assert_eq!((registry.flush_bytes(), registry.compaction_bytes()), (1000, 50));
        drop(merging);
        assert_eq!((registry.flush_bytes(), registry.compaction_bytes()), (1000, 0));
        drop(second);
        assert_eq!(registry.flush_bytes(), 0);
    }
}
