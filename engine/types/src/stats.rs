//! Counters of what a query read, shared by the label phase and the scans of one query; shown by `explain=analyze`
//! and checked against the limits.

use crate::left_out::LeftOut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one query (or one node of it) read.
        #[derive(Debug, Default)]
        pub struct ReadStats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Files that could not be read, as far as the query may go on without them.
            pub left_out: LeftOut,
        }

        impl ReadStats {
            /// Gives names and values, in declaration order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }

            /// Moves what was counted here to another (a node's own counters to those of its query), and gives it.
            pub fn drain_into(&self, other: &Self) -> Vec<(&'static str, u64)> {
                vec![$({
                    let n = self.$name.swap(0, Relaxed);
                    other.$name.fetch_add(n, Relaxed);
                    (stringify!($name), n)
                },)*]
            }
        }
    };
}

counters! {
    /// Parts that the snapshot holds for the table.
    parts_total,
    /// Parts of which anything was opened (index, footer or data).
    parts_read,
    /// Data pages of the parts that were opened.
    pages_total,
    /// Data pages that were read.
    pages_read,
    /// Objects (files) from which bytes were fetched; nothing counts that a cache answered.
    objects_read,
    /// Bytes fetched from data files (`.samples`, `.histograms`, `.exemplars`).
    bytes_read,
    /// Bytes fetched of footers, indexes and series files.
    index_bytes_read,
    /// Look-ups that a cache answered.
    cache_hits,
    /// Look-ups that no cache answered.
    cache_misses,
    /// Series that the selectors gave.
    series,
    /// Samples that were decoded or copied from live data.
    samples,
    /// Values of log rows that were decoded.
    values,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Reads a counter.
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
