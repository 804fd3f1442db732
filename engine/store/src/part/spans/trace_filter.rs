//! A filter of the traces in a part, as it is kept in memory.

use quiver_types::tables::spans::trace_hash;
use xxhash_rust::xxh3::xxh3_64;

use crate::part::bloom::may_hold;

/// A Bloom filter of trace identifiers.
#[derive(Debug)]
pub(crate) struct TraceFilter(pub(super) Vec<u8>);

/// The hash that the filter stores for a trace. It is derived from the hash in the index, because a compaction knows no
/// more of a trace.
pub(super) fn spread(hash: u32) -> u64 {
    xxh3_64(&hash.to_le_bytes())
}

impl TraceFilter {
    /// Tells whether a trace may be in the part.
    pub(crate) fn may_hold(&self, id: &[u8; 16]) -> bool {
        may_hold(&self.0, spread(trace_hash(id)))
    }
}
