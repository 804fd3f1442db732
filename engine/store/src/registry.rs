//! The registry of live series, shared by all generations of a store.
//!
//! A series has one entry, however many generations hold samples of it. The entry is removed when the last of them is
//! dropped (a snapshot that reads a generation keeps it alive), and its number is then given to another new series,
//! lowest first. The registry has two halves with separate locks: identities with reference counts, used only by the
//! WAL's thread, and the [`Index`] that readers use, which is written only when a new series appears.
//!
//! Reused numbers cannot confuse readers. A generation holds a reference to each of its series, so their numbers cannot
//! be reused while the generation exists. A bitmap of matching numbers may be older than a series that has since got
//! the number of a removed one; but that series only has rows of later writes, which the reader's snapshot does not
//! see, and `Generation::held_slots` drops it for that reason.

pub(crate) mod index;
mod matching;
pub(crate) mod paged_table;
mod postings;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use quiver_types::{LabelSet, SeriesId};
use roaring::RoaringBitmap;

pub(crate) use index::Index;

use crate::metrics::METRICS;

/// How many entries are released under one hold of the locks, so that dropping a generation never stops writes.
const RELEASE_BATCH: usize = 1024;

/// Symbols, label sets and postings of the series in unflushed generations.
#[derive(Debug, Default)]
pub struct Registry {
    identities: Mutex<Identities>,
    index: RwLock<Index>,
    next_ordinal: AtomicU32,
    generation_bytes: AtomicUsize,
    flush_bytes: AtomicUsize,
    compaction_bytes: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Identities {
    table: HashTable<Identity>,
    /// Numbers from here on were never given out.
    next_number: u32,
    /// Numbers below that are free.
    free: RoaringBitmap,
}

impl Identities {
    /// Gives the number that the next series gets.
    fn free_number(&self) -> u32 {
        self.free.min().unwrap_or(self.next_number)
    }

    fn take_number(&mut self, number: u32) {
        if !self.free.remove(number) {
            self.next_number = number + 1;
        }
    }

    fn give_back(&mut self, numbers: &[u32]) {
        self.free.extend(numbers);
        // Free numbers at the end can be dropped, as if they had never been used.
        while self.next_number > 0 && self.free.remove(self.next_number - 1) {
            self.next_number -= 1;
        }
    }

    fn bytes(&self) -> usize {
        self.table.allocation_size() + self.free.serialized_size()
    }
}

/// 32 bytes. `slot` is the series' place in the generation `ordinal`, the last one that took it in.
#[derive(Debug)]
struct Identity {
    id: SeriesId,
    number: u32,
    references: u32,
    ordinal: u32,
    slot: u32,
}

/// Where a generation puts series that are new to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeSlots {
    /// Ordinal of the generation.
    pub(crate) ordinal: u32,
    /// Slot of the first of them; the others follow.
    pub(crate) first: u32,
}

/// The result of attaching a series to a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachOutcome {
    /// The generation held it already, at this slot.
    Known(u32),
    /// It is new in the generation, at the offered slot, under this number of the registry.
    New(u32),
    /// The registry is full.
    Refused,
    /// The caller refused it.
    Barred,
}

/// What takes memory besides what ingest holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Writing a generation, after which it holds less.
    Flush,
    /// Merging or rewriting parts.
    Compaction,
}

/// How full the registry is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    /// Bytes in use.
    pub(crate) bytes: usize,
    /// Bytes that may be used.
    pub(crate) bytes_max: usize,
    pub(crate) series: usize,
}

/// The id is a hash already.
fn hash(id: SeriesId) -> u64 {
    id.0 as u64
}

impl Registry {
    /// Gives a generation its number within this registry.
    pub(crate) fn next_ordinal(&self) -> u32 {
        self.next_ordinal.fetch_add(1, Relaxed) + 1
    }

    /// Looks up series in a generation: `slots[i]` for `ids[i]`; positions of those that it lacks go to `unknown`.
    pub(crate) fn resolve(
        &self,
        ordinal: u32,
        ids: impl Iterator<Item = SeriesId>,
        slots: &mut Vec<u32>,
        unknown: &mut Vec<u32>,
    ) {
        let identities = self.identities.lock();
        for (at, id) in ids.enumerate() {
            let slot = match identities.table.find(hash(id), |e| e.id == id) {
                Some(entry) if entry.ordinal == ordinal => entry.slot,
                _ => {
                    unknown.push(at as u32);
                    u32::MAX
                }
            };
            slots.push(slot);
        }
    }

    /// Attaches series to a generation, the first new one at slot `first_slot`; calls back for each. A series that no
    /// generation holds is refused if the registry holds more than `bytes_max`.
    pub(crate) fn attach<'a>(
        &self,
        ordinal: u32,
        first_slot: u32,
        series: impl Iterator<Item = (SeriesId, &'a [u8])>,
        bytes_max: usize,
        taken: impl FnMut(AttachOutcome),
    ) {
        self.attach_where(FreeSlots { ordinal, first: first_slot }, series, bytes_max, |_, _, _| true, taken);
    }

    /// Like [`Self::attach`]; `admit` decides about each series that no generation holds.
    pub(crate) fn attach_where<'a>(
        &self,
        free: FreeSlots,
        series: impl Iterator<Item = (SeriesId, &'a [u8])>,
        bytes_max: usize,
        mut admit: impl FnMut(SeriesId, &[u8], Fill) -> bool,
        mut taken: impl FnMut(AttachOutcome),
    ) {
        let mut identities = self.identities.lock();
        let mut index = None;
        let FreeSlots { ordinal, first: mut next_slot } = free;
        for (id, canonical) in series {
            if let Some(entry) = identities.table.find_mut(hash(id), |e| e.id == id) {
                if entry.ordinal == ordinal {
                    taken(AttachOutcome::Known(entry.slot));
                    continue;
                }
                entry.references += 1;
                (entry.ordinal, entry.slot) = (ordinal, next_slot);
                taken(AttachOutcome::New(entry.number));
                next_slot += 1;
                continue;
            }
            let index = index.get_or_insert_with(|| self.index.write());
            let number = identities.free_number();
            let bytes = index.bytes() + identities.bytes();
            if number == u32::MAX || bytes > bytes_max {
                taken(AttachOutcome::Refused);
                continue;
            }
            if !admit(id, canonical, Fill { bytes, bytes_max, series: index.len() }) {
                taken(AttachOutcome::Barred);
                continue;
            }
            identities.take_number(number);
            index.define(number, id, canonical);
            let entry = Identity { id, number, references: 1, ordinal, slot: next_slot };
            identities.table.insert_unique(hash(id), entry, |e| hash(e.id));
            taken(AttachOutcome::New(number));
            next_slot += 1;
        }
        if let Some(index) = index {
            self.account(&index, &identities);
        }
    }

    /// Gives back a generation's references; removes entries that have none left.
    pub(crate) fn release(&self, numbers: &[u32]) {
        let mut gone = Vec::new();
        for batch in numbers.chunks(RELEASE_BATCH) {
            let ids: Vec<SeriesId> = {
                let index = self.index.read();
                batch.iter().filter_map(|&n| index.id(n)).collect()
            };
            gone.clear();
            let mut identities = self.identities.lock();
            for id in ids {
                let Ok(mut entry) = identities.table.find_entry(hash(id), |e| e.id == id) else { continue };
                entry.get_mut().references -= 1;
                if entry.get().references == 0 {
                    gone.push(entry.remove().0.number);
                }
            }
            if identities.table.len() * 4 < identities.table.capacity() {
                let room = identities.table.len() * 2;
                identities.table.shrink_to(room, |e| hash(e.id));
            }
            if !gone.is_empty() {
                let mut index = self.index.write();
                for &n in &gone {
                    index.remove(n);
                }
                identities.give_back(&gone);
                self.account(&index, &identities);
            }
        }
    }

    fn account(&self, index: &Index, identities: &Identities) {
        let bytes = index.bytes() + identities.bytes();
        self.bytes.store(bytes, Relaxed);
        METRICS.registry_series.set(index.len() as u64);
        METRICS.registry_pairs.set(index.pairs_len() as u64);
        METRICS.registry_bytes.set(bytes as u64);
    }

    /// Gives the labels of live series (those of a generation that the caller holds), calling back in order.
    pub(crate) fn for_labels(&self, numbers: impl Iterator<Item = u32>, mut found: impl FnMut(SeriesId, LabelSet)) {
        let mut index = self.index.read();
        let mut scratch = Vec::with_capacity(512);
        for (at, number) in numbers.enumerate() {
            if at % 4096 == 4095 {
                // A writer that waits for this lock stops the WAL's thread.
                RwLockReadGuard::bump(&mut index);
            }
            let (id, labels) = index.labels(number, &mut scratch).expect("a generation that is held keeps its series");
            found(id, labels);
        }
    }

    fn read_index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    /// Lets a function read the index.
    pub(crate) fn with_index<R>(&self, read: impl FnOnce(&Index) -> R) -> R {
        read(&self.index.read())
    }

    /// Number of live series.
    pub fn len(&self) -> usize {
        self.index.read().len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the registry itself.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes of all generations that are alive, flushed ones that a snapshot still reads included.
    pub fn generation_bytes(&self) -> usize {
        self.generation_bytes.load(Relaxed)
    }

    pub(crate) fn add_generation_bytes(&self, bytes: usize) {
        let now = self.generation_bytes.fetch_add(bytes, Relaxed) + bytes;
        METRICS.generation_bytes.set(now as u64);
    }

    pub(crate) fn sub_generation_bytes(&self, bytes: usize) {
        let now = self.generation_bytes.fetch_sub(bytes, Relaxed) - bytes;
        METRICS.generation_bytes.set(now as u64);
    }

    /// Bytes that flushes take while they run.
    pub(crate) fn flush_bytes(&self) -> usize {
        self.flush_bytes.load(Relaxed)
    }

    /// Bytes that compactions take while they run.
    pub(crate) fn compaction_bytes(&self) -> usize {
        self.compaction_bytes.load(Relaxed)
    }

    /// Counts what a flush, or a compaction, takes from now on.
    pub(crate) fn add_work_bytes(&self, work: Work, bytes: usize) {
        self.work_bytes(work).fetch_add(bytes, Relaxed);
        METRICS.flush_memory.set((self.flush_bytes() + self.compaction_bytes()) as u64);
    }

    /// Counts it no more.
    pub(crate) fn sub_work_bytes(&self, work: Work, bytes: usize) {
        self.work_bytes(work).fetch_sub(bytes, Relaxed);
        METRICS.flush_memory.set((self.flush_bytes() + self.compaction_bytes()) as u64);
    }

    fn work_bytes(&self, work: Work) -> &AtomicUsize {
        match work {
            Work::Flush => &self.flush_bytes,
            Work::Compaction => &self.compaction_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(n: usize) -> LabelSet {
        let value = n.to_string();
        LabelSet::from_pairs([("__name__", "m"), ("n", value.as_str())])
    }

    fn attach(r: &Registry, ordinal: u32, first_slot: u32, sets: &[LabelSet], bytes_max: usize) -> Vec<AttachOutcome> {
        let mut out = Vec::new();
        r.attach(ordinal, first_slot, sets.iter().map(|l| (l.id(), l.canonical())), bytes_max, |a| out.push(a));
        out
    }

    #[test]
    fn entries_live_as_long_as_a_generation() {
        use AttachOutcome::{Known, New};
        let r = Registry::default();
        let sets: Vec<_> = (0..3).map(labels).collect();
        let (a, b) = (r.next_ordinal(), r.next_ordinal());
        assert_eq!(attach(&r, a, 0, &sets[..2], usize::MAX), [New(0), New(1)]);
        assert_eq!(attach(&r, a, 2, &sets[..2], usize::MAX), [Known(0), Known(1)]);
        assert_eq!(attach(&r, b, 0, &sets[1..], usize::MAX), [New(1), New(2)]);
        let (mut slots, mut unknown) = (Vec::new(), Vec::new());
        r.resolve(b, sets.iter().map(LabelSet::id), &mut slots, &mut unknown);
        assert_eq!((slots, unknown), (vec![u32::MAX, 0, 1], vec![0]));
        r.release(&[0, 1]);
        assert_eq!(r.len(), 2);
        r.release(&[1, 2]);
        assert_eq!(r.len(), 0);
        // Numbers come back.
        assert_eq!(attach(&r, b, 0, &sets[..1], usize::MAX), [New(0)]);
    }

    #[test]
    fn numbers_do_not_run_out() {
        let r = Registry::default();
        let mut kept: Vec<u32> = Vec::new();
        for round in 0..50usize {
            // Each generation has some series of the one before, and is let go when the next is there.
            let sets: Vec<_> = (round * 500..round * 500 + 1000).map(labels).collect();
            let ordinal = r.next_ordinal();
            let mut now = Vec::new();
            for attached in attach(&r, ordinal, 0, &sets, usize::MAX) {
                let AttachOutcome::New(number) = attached else { panic!("new to this generation") };
                now.push(number);
            }
            r.release(&std::mem::replace(&mut kept, now));
            assert!(kept.iter().all(|&number| number < 2500), "{:?}", kept.iter().max());
            let distinct: std::collections::BTreeSet<_> = kept.iter().collect();
            assert_eq!(distinct.len(), 1000, "no two series have one number");
            let mut at = 0;
            r.for_labels(kept.iter().copied(), |id, found| {
                assert_eq!((id, &found), (sets[at].id(), &sets[at]));
                at += 1;
            });
        }
        r.release(&kept);
        let identities = r.identities.lock();
        assert_eq!((r.len(), identities.next_number, identities.free.len()), (0, 0, 0));
        assert!(r.bytes() < 200_000, "{}", r.bytes());
    }

    #[test]
    fn the_limit_refuses_new_series_only() {
        let r = Registry::default();
        let sets: Vec<_> = (0..5000).map(labels).collect();
        let ordinal = r.next_ordinal();
        let first = attach(&r, ordinal, 0, &sets, 400_000);
        let kept = first.iter().filter(|a| matches!(a, AttachOutcome::New(_))).count();
        assert!((500..4999).contains(&kept), "{kept}");
        let next = r.next_ordinal();
        let again = attach(&r, next, 0, &sets, 400_000);
        assert_eq!(again.iter().filter(|a| matches!(a, AttachOutcome::New(_))).count(), kept);
    }
}
