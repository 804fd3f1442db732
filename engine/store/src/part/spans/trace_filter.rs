//! A filter of the traces that a part may hold, as it is kept in memory.

use quiver_types::tables::spans::trace_hash;
use xxhash_rust::xxh3::xxh3_64;

use crate::part::bloom::may_hold;

/// A filter of trace ids.
#[derive(Debug)]
pub(crate) struct TraceFilter(pub(super) Vec<u8>);

/// What the filter holds of a trace: its hash in the index is all that a compaction knows.
pub(super) fn spread(hash: u32) -> u64 {
    xxh3_64(&hash.to_le_bytes())
}

impl TraceFilter {
    /// Says whether a trace may be there.
    pub(crate) fn may_hold(&self, id: &[u8; 16]) -> bool {
        may_hold(&self.0, spread(trace_hash(id)))
    }
}
