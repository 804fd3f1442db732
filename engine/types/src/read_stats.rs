//! Counters of what a query reads, shared by its label phase and its scans; shown by `explain=analyze` and checked
//! against its limits.

use std::any::Any;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::Result;
use crate::missing_files::LeftOut;

/// The query of an index look-up, as the look-up sees it: asked before it takes memory, and regularly whether to go
/// on. What it takes is given back at the end of the query.
pub trait Gate: Debug + Send + Sync {
    /// Takes memory.
    ///
    /// # Errors
    /// LimitExceeded.
    fn take(&self, bytes: usize) -> Result<()>;

    /// Gives memory back before the end of the query.
    fn give_back(&self, bytes: usize);

    /// Checks whether the query may go on.
    ///
    /// # Errors
    /// Timeout, Cancelled.
    fn check(&self) -> Result<()>;

    /// Adds CPU time spent for the query.
    fn spent(&self, cpu: Duration) {
        let _ = cpu;
    }

    /// When the query began, by the wall clock; `None`: nobody knows.
    fn moment(&self) -> Option<DateTime<Utc>> {
        None
    }

    /// Gives the memory pool for values computed for the query, of a type that the engine knows; `None`: it has none.
    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// Counters that are shown even to a caller from whom rows are hidden, since they count only what he may see. All
/// others also grow with hidden rows, and would tell him, for example, whether a word occurs in them.
const OF_WHAT_IS_SEEN: [&str; 2] = ["series", "samples"];

impl ReadStats {
    /// Makes counters for another run of the same query: they start at 0, with the same gate and the same hiding.
    #[must_use]
    pub fn for_another_run(&self) -> Self {
        let other = Self { left_out: self.left_out.for_another_run(), ..Self::default() };
        if let Some(gate) = self.gate.get() {
            other.set_gate(Arc::clone(gate));
        }
        if self.is_hidden() {
            other.hide();
        }
        other
    }

    /// Notes that rows are hidden from the caller: from now on he is not shown how much was read to find his rows.
    pub fn hide(&self) {
        self.hidden.store(true, Relaxed);
    }

    /// Says whether rows are hidden from the caller.
    pub fn is_hidden(&self) -> bool {
        self.hidden.load(Relaxed)
    }

    /// Says whether a counter, or the metric of a node with this name, may be shown to the caller.
    pub fn tells(&self, name: &str) -> bool {
        !self.is_hidden() || OF_WHAT_IS_SEEN.contains(&name)
    }

    /// Gives names and values as shown to the caller: 0 for those that count hidden rows, if any are hidden.
    pub fn told(&self) -> Vec<(&'static str, u64)> {
        self.list().into_iter().map(|(name, n)| (name, if self.tells(name) { n } else { 0 })).collect()
    }

    /// Sets the gate; only the first call counts. Without a gate everything is allowed.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        let _ = self.gate.set(gate);
    }

    /// See [`Gate::take`].
    ///
    /// # Errors
    /// Those of the gate.
    pub fn take(&self, bytes: usize) -> Result<()> {
        self.gate.get().map_or(Ok(()), |gate| gate.take(bytes))
    }

    /// Gives memory back to the gate before the end of the query.
    pub fn give_back(&self, bytes: usize) {
        if let Some(gate) = self.gate.get() {
            gate.give_back(bytes);
        }
    }

    /// See [`Gate::check`].
    ///
    /// # Errors
    /// Those of the gate.
    pub fn check(&self) -> Result<()> {
        self.gate.get().map_or(Ok(()), |gate| gate.check())
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one query (or one node of it) read.
        #[derive(Debug, Default)]
        pub struct ReadStats {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Unreadable files that the query went on without.
            pub left_out: LeftOut,
            /// Where look-ups check memory and time.
            gate: OnceLock<Arc<dyn Gate>>,
            /// Whether rows are hidden from the caller.
            hidden: AtomicBool,
        }

        impl ReadStats {
            /// Gives names and values, in declaration order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }

            /// Adds all counters to another set (those of a node to those of its query), resets them, and gives what
            /// was moved.
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
    /// Objects (files) from which bytes were fetched, not counting what caches had.
    objects_read,
    /// Bytes fetched from data files (`.samples`, `.histograms`, `.exemplars`).
    bytes_read,
    /// Bytes fetched of footers, indexes and series files.
    index_bytes_read,
    /// Look-ups that a cache answered.
    cache_hits,
    /// Look-ups that no cache answered.
    cache_misses,
    /// Decoded pages of series and of their index, not counting what caches had.
    index_pages_read,
    /// Series in the parts and live data that selectors were evaluated on; 0 if the caller may not see all of them.
    series_considered,
    /// Series that matched the selectors.
    series,
    /// Log streams that conditions on streams were evaluated on, in the same way.
    streams,
    /// Log streams that matched them.
    streams_chosen,
    /// Blocks of streams, and pages of the index of their labels, that were read.
    stream_blocks_read,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Has memory for nothing.
    #[derive(Debug)]
    struct Closed;

    impl Gate for Closed {
        fn take(&self, _: usize) -> Result<()> {
            Err(crate::Error::new(crate::ErrorKind::LimitExceeded, "nothing is left"))
        }

        fn give_back(&self, _: usize) {}

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_run_beside_counts_for_itself_and_asks_the_same_gate() {
        let stats = ReadStats::default();
        stats.set_gate(Arc::new(Closed));
        stats.hide();
        stats.left_out.allow();
        add(&stats.samples, 3);
        let damaged = || crate::Error::new(crate::ErrorKind::Damaged, "file `a` is damaged");
        stats.left_out.note(damaged()).unwrap();
        let other = stats.for_another_run();
        assert_eq!((get(&other.samples), other.is_hidden(), other.left_out.is_empty()), (0, true, true));
        assert!(other.take(1).is_err() && other.left_out.note(damaged()).unwrap());
        add(&other.samples, 5);
        assert_eq!(get(&stats.samples), 3);
        assert!(ReadStats::default().for_another_run().left_out.note(damaged()).is_err(), "it may as little");
    }

    #[test]
    fn what_was_read_of_others_is_not_told() {
        let stats = ReadStats::default();
        add(&stats.pages_read, 3);
        add(&stats.values, 20);
        add(&stats.samples, 7);
        assert_eq!(stats.told(), stats.list());
        stats.hide();
        let told: Vec<_> = stats.told().into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(told, [("samples", 7)]);
        assert_eq!(get(&stats.values), 20, "limits count all the same");
    }
}
