//! Writes wait while ingest holds too much memory, or runs ahead of the flush, and are refused if that does not end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver_types::{Error, ErrorKind, Result};

use super::WritePath;
use crate::metrics::METRICS;

/// How long a write waits for memory before it is refused.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often it looks whether there is room by now.
pub(super) const MEMORY_WAIT_STEP: Duration = Duration::from_millis(10);
/// Number of full-sized generations that may be in memory before writes wait for the flush.
const GENERATIONS_MAX: u64 = 2;
/// Number of generations of any size above which writes wait, and above which they are refused.
pub(super) const SMALL_GENERATIONS_MAX: [usize; 2] = [8, 32];
/// This fraction (1/n) of the budget remains for writes even while the process is short of memory.
const FREE_PART: u64 = 4;

impl WritePath {
    /// Bytes held by generations, registry, queued writes, flushes and compactions under way.
    pub fn memory_bytes(&self) -> u64 {
        self.own_memory_bytes() + self.registry.compaction_bytes() as u64
    }

    /// The same without compactions: what flushes free.
    fn own_memory_bytes(&self) -> u64 {
        let held = self.registry.bytes() + self.registry.generation_bytes() + self.registry.flush_bytes();
        held as u64 + self.queued_bytes.load(Relaxed)
    }

    /// Whether so many bytes are too many: they exceed the budget of ingest, or the process is short of memory and they
    /// exceed the fraction that is always left to ingest.
    fn is_too_much(&self, held: u64) -> bool {
        let short = self.settings.pressure.is_short() && held > self.settings.memory_bytes / FREE_PART;
        held > self.settings.memory_bytes || short
    }

    /// Whether writes must wait for memory.
    pub(super) fn lacks_memory(&self) -> bool {
        self.is_too_much(self.memory_bytes())
    }

    /// Whether they must wait for it even where no compaction takes any.
    fn lacks_own_memory(&self) -> bool {
        self.is_too_much(self.own_memory_bytes())
    }

    /// Whether more than one full generation besides the open one waits for its flush. Without this bound memory would
    /// grow for as long as data arrives faster than the disk takes it.
    pub(super) fn runs_ahead(&self) -> bool {
        let (generations, bytes) = self.unflushed();
        generations > SMALL_GENERATIONS_MAX[0]
            || (generations > 1 && bytes as u64 > self.settings.generation_bytes * GENERATIONS_MAX)
    }

    /// Gives number and bytes of the open generation and those that wait for their flush. Generations that were set aside
    /// do not count: their flush is retried, but may never succeed, so nothing may wait for it.
    pub(super) fn unflushed(&self) -> (usize, usize) {
        let visible = self.shared.visible();
        let on_their_way = visible.generations.iter().filter(|g| !g.is_aside());
        on_their_way.fold((0, 0), |(count, bytes), g| (count + 1, bytes + g.bytes()))
    }

    /// Whether so many generations wait for their flush that writes are refused, whatever their size.
    fn lacks_flush(&self) -> bool {
        self.unflushed().0 > SMALL_GENERATIONS_MAX[1]
    }

    /// Waits until there is room. After `MEMORY_WAIT_MAX`, a write that only runs ahead of the flush, or only waits for a
    /// compaction, proceeds; one that would exceed the memory budget or the number of generations is refused.
    ///
    /// # Errors
    /// Unavailable: it is refused, and may be sent again; or the store stops.
    pub(super) async fn wait_for_memory(&self) -> Result<()> {
        if !self.lacks_memory() && !self.runs_ahead() {
            return Ok(());
        }
        METRICS.ingest_waits.inc();
        let started = Instant::now();
        if self.unflushed().0 <= 1 && self.lacks_own_memory() {
            // No flush is under way, so without a seal nothing would ever be freed. What a compaction takes is freed
            // without: sealed for each write that waits for it, generations would become ever more, smaller parts.
            self.seal().await?;
        }
        while self.lacks_memory() || self.runs_ahead() {
            if started.elapsed() >= MEMORY_WAIT_MAX {
                let text = match (self.lacks_own_memory(), self.lacks_flush()) {
                    (true, _) => "ingest is over its memory limit; waiting for the flush",
                    (false, true) => "too many generations wait for their flush",
                    (false, false) => break,
                };
                METRICS.ingest_refused.inc();
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            tokio::time::sleep(MEMORY_WAIT_STEP).await;
        }
        Ok(())
    }
}
