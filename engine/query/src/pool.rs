//! One memory pool for all queries, and the share of one query in it.
//!
//! A query may hold twice as much as is left free: a single one gets two thirds of the pool, each of n gets 2 / (2 n +
//! 1), and there is always something left for the next. Small amounts are granted as long as the pool has them, and where
//! others hold no more than such an amount together, a query gets what it would get alone: one that waits for room holds a
//! little already, and must not make the refusal of another one seem to be due to it.
//!
//! Results cached between queries take memory from the same pool. They are evicted, least recently used first, if that
//! lets a query get what it asks for.
//!
//! Consumers that can spill leave room for those that cannot, and for each other: a sort that filled the share of its query
//! would leave none for the sort of another partition, which cannot even begin then. What a sort holds it needs again, up
//! to twice, while it puts that in order to spill it, in a consumer of its own that cannot spill ([`MERGE`]): sorts together
//! leave room for that and for who reads their rows, and no merge takes what others need to begin.
//!
//! A refusal tells whose fault it is: if the query would have got the memory without the others, it may be retried
//! ([`CROWDED`]), else it can never succeed. Then it names what the query takes most of its memory for ([`MOSTLY`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use quiver_types::MemoryPressure;

use crate::error::{CROWDED, MOSTLY};
use crate::memory_uses::MemoryUses;

/// A query may hold this many times the memory that is free.
const TIMES_FREE: usize = 2;
/// Up to this fraction (1/n) of the pool is granted regardless of shares.
const SMALL_PART: usize = 64;
/// What can spill may hold more than its part only while its query has this much (4/4 are its share).
const SPILLING_FOURTHS: usize = 3;
/// Operators beside sorts gather rows up to this fraction (1/n) of the share of their query together.
const GATHERED_PART: usize = 4;
/// What several sorts gather together, in tenths of the share: a merge of it counts all twice, and somewhat more.
const SORTED_TENTHS: usize = 3;
/// What their merges take together, in thirds of the share: who merges the rows of all of them needs room, too.
const MERGED_THIRDS: usize = 2;
/// How the consumers of DataFusion's sorts are named.
const SORT: &str = "ExternalSorter";
/// How the consumers of DataFusion's sorts are named that merge sorted rows.
const MERGE: &str = "ExternalSorterMerge";
/// A query that holds less than this fraction (1/n) of the pool is not the cause of a full process.
const MUCH_PART: usize = 4;

/// A cache of results between queries, whose memory is given up if queries need it.
pub trait Keeper: Send + Sync {
    /// Evicts the least recently used result; says whether there was one.
    ///
    /// Called by a query that asks for memory, on any thread: it must not wait for queries or take memory itself.
    fn let_go(&self) -> bool;
}

/// The memory that all queries share.
pub(crate) struct SharedPool {
    pub(crate) pool: Arc<dyn MemoryPool>,
    pub(crate) size: usize,
    pub(crate) pressure: Arc<MemoryPressure>,
    /// Bytes that queries hold. The rest is held by cached results and by functions that know no query.
    lent: AtomicUsize,
    /// Bytes of cached results.
    kept: AtomicUsize,
    /// The caches of these results.
    pub(crate) keepers: Mutex<Vec<Weak<dyn Keeper>>>,
    /// How often a query was refused what others held.
    refused: AtomicU64,
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, size, pressure, lent, kept, keepers: _, refused: _ } = self;
        let mut shown = f.debug_struct("SharedPool");
        shown.field("pool", pool).field("size", size).field("pressure", pressure);
        shown.field("lent", lent).field("kept", kept).finish_non_exhaustive()
    }
}

impl SharedPool {
    /// Shares a pool of `size` bytes.
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, size: usize, pressure: Arc<MemoryPressure>) -> Arc<Self> {
        let (lent, kept, keepers, refused) = Default::default();
        Arc::new(Self { pool, size, pressure, lent, kept, keepers, refused })
    }

    /// How often a query was refused what others held.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Evicts a cached result; says whether there was one. A query that reads it keeps it alive.
    fn let_go(&self) -> bool {
        let keepers: Vec<_> = self.keepers.lock().iter().filter_map(Weak::upgrade).collect();
        keepers.iter().any(|keeper| keeper.let_go())
    }
}

/// The memory pool of cached results.
#[derive(Debug)]
pub(crate) struct KeptPool(pub(crate) Arc<SharedPool>);

impl fmt::Display for KeptPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept({})", self.reserved())
    }
}

impl MemoryPool for KeptPool {
    fn name(&self) -> &'static str {
        "kept"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.0.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.0.kept.fetch_add(additional, Relaxed);
        self.0.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.0.kept.fetch_sub(shrink, Relaxed);
        self.0.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.0.pool.try_grow(reservation, additional)?;
        self.0.kept.fetch_add(additional, Relaxed);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.0.kept.load(Relaxed)
    }
}

/// The memory pool of one query: bounds it, and borrows from the shared pool.
#[derive(Debug)]
pub(crate) struct QueryPool {
    shared: Arc<SharedPool>,
    used: AtomicUsize,
    peak: AtomicUsize,
    max: usize,
    /// Number of its consumers that can spill, and the bytes that they hold.
    spillers: AtomicUsize,
    spillable: AtomicUsize,
    /// Number of its sorts.
    sorts: AtomicUsize,
    /// Bytes of its spill files.
    pub(crate) spilled: AtomicU64,
    /// What the query holds in all its pools; `None`: the query is unknown, and a refusal never blames others.
    owner: Option<Arc<Owner>>,
}

/// What a query holds in all its pools.
#[derive(Debug, Default)]
struct Owner {
    bytes: AtomicUsize,
    /// The most that it held or asked for, and twice that where others held it.
    wanted: AtomicUsize,
    uses: MemoryUses,
}

impl QueryPool {
    /// Makes the pool of a query, which may never hold more than `max` bytes.
    pub(crate) fn new(shared: Arc<SharedPool>, max: usize) -> Self {
        let (used, peak, spillers, spillable, sorts, spilled) = Default::default();
        Self { shared, used, peak, max, spillers, spillable, sorts, spilled, owner: Some(Arc::default()) }
    }

    /// Makes a second pool of the same query for values of functions: a sort fills its pool before it spills, and its
    /// input must not fail for that.
    pub(crate) fn of_values(&self) -> Self {
        Self { owner: self.owner.clone(), ..Self::new(Arc::clone(&self.shared), self.shared.size) }
    }

    /// Makes the pool of functions that do not know for which query they run: all of them together may hold what one
    /// query may.
    pub(crate) fn of_nobody(shared: &Arc<SharedPool>) -> Self {
        Self { owner: None, ..Self::new(Arc::clone(shared), shared.size) }
    }

    /// Gives the bytes held now, and their maximum so far.
    pub(crate) fn used_and_peak(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.peak.load(Relaxed))
    }

    /// Gives the bytes that the query holds in all its pools.
    pub(crate) fn held(&self) -> usize {
        self.owner.as_ref().map_or_else(|| self.used.load(Relaxed), |owner| owner.bytes.load(Relaxed))
    }

    /// Gives the most bytes that the query held or asked for so far, in all its pools. Where it was refused what others
    /// held, it did not get as far as to ask for all that it takes: then twice as many.
    pub(crate) fn wanted(&self) -> usize {
        self.owner.as_ref().map_or(0, |owner| owner.wanted.load(Relaxed))
    }

    /// The most that a query may hold after it grows by `additional`, once others have given back `given_back`. `little`
    /// bytes of what is then held are left out of the calculation.
    fn share(&self, additional: usize, given_back: usize, little: usize) -> usize {
        let rest = self.shared.pool.reserved().saturating_sub(given_back).saturating_sub(little);
        let held = rest.saturating_add(additional);
        let free = self.shared.size.saturating_sub(held);
        self.max.min(free.saturating_mul(TIMES_FREE).max(self.small()))
    }

    /// Bytes that are granted regardless of shares.
    pub(crate) fn small(&self) -> usize {
        self.shared.size / SMALL_PART
    }

    /// Bytes that other queries hold.
    fn of_others(&self) -> usize {
        let own = |owner: &Arc<Owner>| self.shared.lent.load(Relaxed).saturating_sub(owner.bytes.load(Relaxed));
        self.owner.as_ref().map_or(0, own)
    }

    /// Bytes that other queries hold, up to a small amount.
    fn little_of_others(&self) -> usize {
        self.of_others().min(self.small())
    }

    /// Counts bytes that are granted or requested.
    fn add(&self, reservation: &MemoryReservation, bytes: usize) -> usize {
        if reservation.consumer().can_spill() {
            self.spillable.fetch_add(bytes, Relaxed);
        }
        if let Some(owner) = &self.owner {
            let held = owner.bytes.fetch_add(bytes, Relaxed) + bytes;
            owner.wanted.fetch_max(held, Relaxed);
            owner.uses.add(reservation.consumer().name(), bytes);
            self.shared.lent.fetch_add(bytes, Relaxed);
        }
        self.used.fetch_add(bytes, Relaxed) + bytes
    }

    fn sub(&self, reservation: &MemoryReservation, bytes: usize) {
        if reservation.consumer().can_spill() {
            self.spillable.fetch_sub(bytes, Relaxed);
        }
        if let Some(owner) = &self.owner {
            owner.bytes.fetch_sub(bytes, Relaxed);
            owner.uses.sub(reservation.consumer().name(), bytes);
            self.shared.lent.fetch_sub(bytes, Relaxed);
        }
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Whether a consumer that can spill, or that merges what a sort spilled, would take what is kept for the others of its
    /// query, if `given_back` of what others hold does not count.
    fn is_greedy(&self, reservation: &MemoryReservation, additional: usize, used: usize, given_back: usize) -> bool {
        let spillers = self.spillers.load(Relaxed);
        let (can_spill, is_merge) =
            (reservation.consumer().can_spill(), reservation.consumer().name().starts_with(MERGE));
        // One that holds nothing has nothing to spill.
        if reservation.size() == 0 || !can_spill && !is_merge {
            return false;
        }
        let before = used.saturating_sub(additional);
        let others = self.shared.pool.reserved().saturating_sub(given_back).saturating_sub(before);
        let left = self.shared.size.saturating_sub(others);
        // What `share` would be for a query that holds all of its share.
        let share = self.max.min(left / (TIMES_FREE + 1) * TIMES_FREE).max(self.small());
        let spillable = self.spillable.load(Relaxed);
        let sorts = self.sorts.load(Relaxed);
        if sorts > 0 {
            let (wanted, gathered) = (reservation.size() + additional, share / GATHERED_PART);
            return if is_merge {
                sorts > 1 && wanted > share / 3 * MERGED_THIRDS / sorts
            } else if sorts > 1 && reservation.consumer().name().starts_with(SORT) {
                wanted > share / 10 * SORTED_TENTHS / sorts
            } else {
                spillable > gathered && wanted > gathered / spillers.max(1)
            };
        }
        if spillers < 2 || is_merge {
            return false;
        }
        let unspillable = used.saturating_sub(spillable);
        let part = share.saturating_sub(unspillable) / spillers;
        reservation.size() + additional > part && used > share / 4 * SPILLING_FOURTHS
    }

    /// Says whether a refusal is due to other queries: alone, this one could hold the `used` bytes that it would then
    /// have.
    fn is_crowded_out(&self, reservation: &MemoryReservation, additional: usize, used: usize, short: bool) -> bool {
        let Some(owner) = &self.owner else { return false };
        let (own, others) = (owner.bytes.load(Relaxed), self.of_others());
        // It is unknown what fills the process; a query that holds much, and more than all others, is the most likely
        // cause.
        let is_own_fault = if short { own > others && own > self.shared.size / MUCH_PART } else { others == 0 };
        if is_own_fault {
            return false;
        }
        self.fits(reservation, additional, used, (others + self.shared.kept.load(Relaxed), 0))
    }

    /// Whether a reservation may hold `used` bytes in total, once others have given back `given_back`; `little` bytes of the
    /// rest do not count in its share.
    fn fits(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        used: usize,
        (given_back, little): (usize, usize),
    ) -> bool {
        let rest = self.shared.pool.reserved().saturating_sub(given_back);
        if rest.saturating_add(additional) > self.shared.size || used > self.share(additional, given_back, little) {
            return false;
        }
        if self.is_greedy(reservation, additional, used, given_back + little) {
            return false;
        }
        if !reservation.consumer().can_spill() {
            return true;
        }
        // Consumers that can spill share what the others leave.
        let spillable = self.spillable.load(Relaxed).saturating_sub(additional);
        let part = self.shared.size.saturating_sub(rest.saturating_sub(spillable));
        reservation.size() + additional <= part / self.spillers.load(Relaxed).max(1)
    }

    /// Borrows `additional` bytes, after which the query would hold `used`.
    fn lend(&self, reservation: &MemoryReservation, additional: usize, used: usize, short: bool) -> Result<()> {
        let little = self.little_of_others();
        let share = self.share(additional, 0, little);
        if short && used > self.small() {
            let text = format!("the process is at its memory limit, and the query holds {used} bytes");
            Err(DataFusionError::ResourcesExhausted(text))
        } else if used > share {
            let text = format!("the query holds {used} bytes, more than its share of {share}");
            Err(DataFusionError::ResourcesExhausted(text))
        } else if self.is_greedy(reservation, additional, used, little) {
            let text =
                format!("the query holds {used} bytes of {share}, the rest of which is for others of its operators");
            Err(DataFusionError::ResourcesExhausted(text))
        } else {
            self.shared.pool.try_grow(reservation, additional)
        }
    }

    /// Retries after evicting as many cached results as needed, if that can help.
    fn lend_instead(&self, reservation: &MemoryReservation, additional: usize, used: usize) -> Option<Result<()>> {
        let fits = |given_back: usize| self.fits(reservation, additional, used, (given_back, self.little_of_others()));
        let kept = self.shared.kept.load(Relaxed);
        if kept == 0 || !fits(kept) {
            return None;
        }
        while !fits(0) && self.shared.let_go() {}
        (self.shared.kept.load(Relaxed) < kept)
            .then(|| self.lend(reservation, additional, used, self.shared.pressure.is_short()))
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
        self.spillers.fetch_add(usize::from(consumer.can_spill()), Relaxed);
        self.sorts.fetch_add(usize::from(consumer.name().starts_with(MERGE)), Relaxed);
        self.shared.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.spillers.fetch_sub(usize::from(consumer.can_spill()), Relaxed);
        self.sorts.fetch_sub(usize::from(consumer.name().starts_with(MERGE)), Relaxed);
        self.shared.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.peak.fetch_max(self.add(reservation, additional), Relaxed);
        self.shared.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.sub(reservation, shrink);
        self.shared.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let (used, short) = (self.add(reservation, additional), self.shared.pressure.is_short());
        let lent = self.lend(reservation, additional, used, short);
        let lent = lent.or_else(|refused| self.lend_instead(reservation, additional, used).unwrap_or(Err(refused)));
        let Err(refused) = lent else {
            self.peak.fetch_max(used, Relaxed);
            return Ok(());
        };
        let crowded = self.is_crowded_out(reservation, additional, used, short);
        self.shared.refused.fetch_add(u64::from(crowded), Relaxed);
        if let Some(owner) = self.owner.as_ref().filter(|_| crowded) {
            owner.wanted.fetch_max(owner.bytes.load(Relaxed).saturating_mul(2), Relaxed);
        }
        // What is asked for is counted still.
        let most = self.owner.as_ref().and_then(|owner| owner.uses.most());
        self.sub(reservation, additional);
        let text = match (crowded, most) {
            (true, _) => format!("{CROWDED}: {refused}"),
            (false, Some(work)) => format!("{MOSTLY}{work}: {refused}"),
            (false, None) => return Err(refused),
        };
        Err(DataFusionError::ResourcesExhausted(text))
    }

    fn reserved(&self) -> usize {
        self.used.load(Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.max.min(self.shared.size))
    }
}

#[cfg(test)]
mod tests;
