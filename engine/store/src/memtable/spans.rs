//! The spans of a generation: batches as they came, with their times. Appended by the WAL's thread, read by anyone.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use parking_lot::RwLock;
use quiver_types::SpansBatch;

/// One write.
#[derive(Debug)]
pub(crate) struct SpanChunk {
    pub(crate) batch: SpansBatch,
    /// First and last start, Unix nanoseconds.
    pub(crate) starts: (i64, i64),
    seq: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LiveSpans(RwLock<Vec<Arc<SpanChunk>>>);

/// Gives the starts of a batch.
pub(crate) fn starts(batch: &SpansBatch) -> &[i64] {
    batch.spans["start"].as_primitive::<Int64Type>().values()
}

impl LiveSpans {
    /// Appends a write; gives the bytes that it takes.
    pub(crate) fn insert(&self, batch: SpansBatch, seq: u32) -> usize {
        let bytes = batch.memory_bytes() + size_of::<SpanChunk>();
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        starts(&batch).iter().for_each(|&t| (min, max) = (min.min(t), max.max(t)));
        self.0.write().push(Arc::new(SpanChunk { batch, starts: (min, max), seq }));
        bytes
    }

    /// Gives the writes up to a number whose starts may lie in a closed range.
    pub(crate) fn view(&self, cut: u32, range: (i64, i64)) -> Vec<Arc<SpanChunk>> {
        let wanted = |c: &&Arc<SpanChunk>| c.seq <= cut && c.starts.0 <= range.1 && range.0 <= c.starts.1;
        self.0.read().iter().filter(wanted).map(Arc::clone).collect()
    }
}
