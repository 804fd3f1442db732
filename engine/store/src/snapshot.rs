//! What exists at one moment: parts, live generations, and the last inserted record.
//!
//! One [`Shared`] per process holds it in one `ArcSwap`, so that a flush swaps "parts in, generation out" in a single
//! store and a reader sees either the generation or its parts, never both and never neither. A query pins one
//! [`Snapshot`] and reads nothing else; a part's files live as long as somebody holds its `Arc`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quiver_types::{MillisRange, Pins, Result, Version};
use serde::{Deserialize, Serialize};

use crate::changes::ChangeLog;
use crate::memtable::Generation;
use crate::part::Part;

/// Everything that queries may read.
#[derive(Clone, Default)]
pub struct Visible {
    /// Number of the last catalog commit that is in `parts`.
    pub commit: u64,
    /// Live parts of all tables, sorted by table, then day (see [`Visible::sort_parts`]).
    pub parts: Arc<Vec<Arc<Part>>>,
    /// Generations that are not in `parts`: sealed ones in the order of their numbers, then the open one.
    pub generations: Vec<Arc<Generation>>,
}

impl Visible {
    /// Brings parts into the order that `parts` must have.
    pub fn sort_parts(parts: &mut [Arc<Part>]) {
        parts.sort_by(|a, b| {
            let key = |p: &Part| (p.meta.day, p.meta.min_ts, p.meta.id);
            a.meta.table.cmp(&b.meta.table).then_with(|| key(a).cmp(&key(b)))
        });
    }

    /// Puts sorted parts among sorted ones; few among many cost little more than the copy.
    pub(crate) fn merge_parts(known: Vec<Arc<Part>>, added: Vec<Arc<Part>>) -> Vec<Arc<Part>> {
        let key = |p: &Arc<Part>| (p.meta.day, p.meta.min_ts, p.meta.id);
        let mut out = Vec::with_capacity(known.len() + added.len());
        let mut rest = known.into_iter().peekable();
        for part in added {
            let table = part.meta.table.as_str();
            while let Some(next) =
                rest.next_if(|k| k.meta.table.as_str().cmp(table).then_with(|| key(k).cmp(&key(&part))).is_le())
            {
                out.push(next);
            }
            out.push(part);
        }
        out.extend(rest);
        out
    }

    /// Gives the parts of one table, sorted by day.
    pub fn table(&self, table: &str) -> &[Arc<Part>] {
        let start = self.parts.partition_point(|p| p.meta.table.as_str() < table);
        let len = self.parts[start..].partition_point(|p| p.meta.table == table);
        &self.parts[start..start + len]
    }
}

impl fmt::Debug for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visible")
            .field("commit", &self.commit)
            .field("parts", &self.parts.len())
            .field("generations", &self.generations.len())
            .finish()
    }
}

/// The one place of a process from which readers take snapshots and in which writers publish.
#[derive(Debug, Default)]
pub struct Shared {
    visible: ArcSwap<Visible>,
    seq: AtomicU64,
    update_lock: Mutex<()>,
    /// The log of writes of samples.
    changes: ChangeLog,
    log_changes: ChangeLog,
    span_changes: ChangeLog,
    /// Grows before and after days are dropped.
    drops: AtomicU64,
}

impl Shared {
    /// Starts with the given parts and generations and the last sequence number in them.
    pub fn new(visible: Visible, seq: u64) -> Self {
        Self { visible: ArcSwap::from_pointee(visible), seq: AtomicU64::new(seq), ..Self::default() }
    }

    /// The log of writes of samples.
    pub(crate) fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    /// The log of writes of logs.
    pub(crate) fn log_changes(&self) -> &ChangeLog {
        &self.log_changes
    }

    /// The log of writes of spans.
    pub(crate) fn span_changes(&self) -> &ChangeLog {
        &self.span_changes
    }

    /// Says that data is about to be dropped, or was: results made before, or meanwhile, are no longer true.
    pub(crate) fn dropping(&self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was said.
    pub(crate) fn drops(&self) -> u64 {
        self.drops.load(Ordering::SeqCst)
    }

    /// Gives what exists now, without pinning a sequence number.
    pub fn visible(&self) -> Arc<Visible> {
        self.visible.load_full()
    }

    /// Replaces what exists by what `change` makes of it. Changes run one after the other; keep them short, and do no
    /// I/O in them: the WAL's thread waits for the same lock when it begins a generation.
    pub fn update(&self, change: impl FnOnce(&Visible) -> Visible) {
        let _guard = self.update_lock.lock();
        let next = change(&self.visible.load());
        self.visible.store(Arc::new(next));
    }

    /// Gives the sequence number of the last inserted record.
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Publishes a record: called by the inserter after the whole record stands in its generation, in ascending order.
    pub fn advance(&self, seq: u64) {
        self.seq.fetch_max(seq, Ordering::Release);
    }

    /// Pins what is visible now. The number is loaded before the list: everything up to it is then surely in the list
    /// (a generation is listed before its first record), while a record that comes between the two loads has a greater
    /// number and is left out, or came with a flush that put all records up to it into parts.
    pub fn snapshot(&self) -> Snapshot {
        let drops = self.drops();
        let seq = self.seq();
        Snapshot { visible: self.visible.load_full(), seq, drops }
    }
}

/// What one query sees.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The live parts, and the generations that are not in parts yet.
    pub visible: Arc<Visible>,
    /// Live reads stop after the record with this sequence number.
    pub seq: u64,
    /// How often data had been dropped: a result is void when it has changed since.
    pub(crate) drops: u64,
}

/// A snapshot that is named and not held: a plan that is read slowly must keep no more than what it reads.
#[derive(Debug)]
pub(crate) struct SnapshotName {
    visible: Weak<Visible>,
    seq: u64,
    drops: u64,
}

impl SnapshotName {
    /// Gives the snapshot as long as somebody holds it.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let visible = self.visible.upgrade()?;
        Some(Snapshot { visible, seq: self.seq, drops: self.drops })
    }
}

/// The written form of a snapshot: what it sees by its number in this process, which leads there as long as somebody
/// holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotForm {
    visible: u64,
    seq: u64,
    drops: u64,
}

impl SnapshotForm {
    /// Finds the snapshot.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let visible = Pins::of_process().pinned(self.visible)?;
        Ok(Snapshot { visible, seq: self.seq, drops: self.drops })
    }
}

impl Snapshot {
    /// Gives a name that holds nothing, by which the snapshot is found as long as somebody else holds it.
    pub(crate) fn name(&self) -> SnapshotName {
        SnapshotName { visible: Arc::downgrade(&self.visible), seq: self.seq, drops: self.drops }
    }

    /// Names it for a written plan.
    pub(crate) fn form(&self) -> SnapshotForm {
        SnapshotForm { visible: Pins::of_process().pin(&self.visible), seq: self.seq, drops: self.drops }
    }

    /// The moment, for whoever asks later whether it is past.
    pub(crate) fn version(&self) -> Version {
        Version { written: self.seq, dropped: self.drops }
    }

    /// Says whether what an older snapshot saw of a range is what this one sees: a younger one may have seen more.
    pub(crate) fn is_unchanged(&self, shared: &Shared, log: &ChangeLog, since: Version, range: MillisRange) -> bool {
        since.written <= self.seq
            && since.dropped == self.drops
            && self.drops == shared.drops()
            && log.first_after(since.written, range).is_none()
    }
}
