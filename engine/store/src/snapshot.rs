//! What exists at one moment: parts, live generations, and the last inserted record.
//!
//! One [`SnapshotPublisher`] per store holds it in one `ArcSwap`. A flush adds parts and removes the generation in one atomic
//! step, so a reader sees either the generation or its parts, never both and never neither. A query pins one
//! [`Snapshot`] and reads nothing else; the files of a part live as long as its `Arc`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quiver_types::{MillisRange, Pins, Result, Version};
use serde::{Deserialize, Serialize};

use crate::change_log::ChangeLog;
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
    /// Sorts parts as [`Self::parts`] must be.
    pub fn sort_parts(parts: &mut [Arc<Part>]) {
        parts.sort_by(|a, b| {
            let key = |p: &Part| (p.meta.day, p.meta.min_ts, p.meta.id);
            a.meta.table.cmp(&b.meta.table).then_with(|| key(a).cmp(&key(b)))
        });
    }

    /// Merges two sorted lists of parts. Adding few to many costs little more than copying the list.
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

/// Where readers take snapshots and writers publish; one per store.
#[derive(Debug, Default)]
pub struct SnapshotPublisher {
    visible: ArcSwap<Visible>,
    seq: AtomicU64,
    update_lock: Mutex<()>,
    /// Changes of metrics.
    changes: ChangeLog,
    log_changes: ChangeLog,
    span_changes: ChangeLog,
    /// Incremented before and after days are dropped.
    drops: AtomicU64,
}

impl SnapshotPublisher {
    /// Starts with the given parts and generations and the last sequence number in them.
    pub fn new(visible: Visible, seq: u64) -> Self {
        Self { visible: ArcSwap::from_pointee(visible), seq: AtomicU64::new(seq), ..Self::default() }
    }

    /// The log of changes of metrics.
    pub(crate) fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    pub(crate) fn log_changes(&self) -> &ChangeLog {
        &self.log_changes
    }

    /// The log of changes of spans.
    pub(crate) fn span_changes(&self) -> &ChangeLog {
        &self.span_changes
    }

    /// Notes that data is about to be dropped, or has been: results computed before or meanwhile are no longer valid.
    pub(crate) fn dropping(&self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of calls of [`Self::dropping`].
    pub(crate) fn drops(&self) -> u64 {
        self.drops.load(Ordering::SeqCst)
    }

    /// Gives what is visible now, without a sequence number; see [`Self::snapshot`].
    pub fn visible(&self) -> Arc<Visible> {
        self.visible.load_full()
    }

    /// Replaces what is visible by what `change` makes of it. Changes run one at a time; keep them short and without
    /// I/O, since the WAL's thread takes the same lock to add a generation.
    pub fn update(&self, change: impl FnOnce(&Visible) -> Visible) {
        let _guard = self.update_lock.lock();
        let next = change(&self.visible.load());
        self.visible.store(Arc::new(next));
    }

    /// Gives the sequence number of the last inserted record.
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Publishes a record. To be called in ascending order, after the whole record has been inserted in its generation.
    pub fn advance(&self, seq: u64) {
        self.seq.fetch_max(seq, Ordering::Release);
    }

    /// Pins what is visible now. The sequence number is loaded before the list. So the list holds every record up to
    /// the number (a generation is listed before its first record), and a record inserted between the two loads has a
    /// greater number and is not seen, unless a flush has already put it into a part, with all records before it.
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
    /// Sequence number of the last record that is read from generations.
    pub seq: u64,
    /// [`SnapshotPublisher::drops`] at that moment; a cached result is invalid if it has changed since.
    pub(crate) drops: u64,
}

/// A weak reference to a snapshot, for plans whose client reads slowly: they keep alive only the parts they still read.
#[derive(Debug)]
pub(crate) struct SnapshotName {
    visible: Weak<Visible>,
    seq: u64,
    drops: u64,
}

impl SnapshotName {
    /// Gives the snapshot, unless nothing holds it any more.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let visible = self.visible.upgrade()?;
        Some(Snapshot { visible, seq: self.seq, drops: self.drops })
    }
}

/// The serialized form of a snapshot: the number under which this process has pinned what is visible. It can be
/// resolved as long as the snapshot is held.
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
    /// Gives a weak reference to the snapshot.
    pub(crate) fn name(&self) -> SnapshotName {
        SnapshotName { visible: Arc::downgrade(&self.visible), seq: self.seq, drops: self.drops }
    }

    /// Gives its serialized form.
    pub(crate) fn form(&self) -> SnapshotForm {
        SnapshotForm { visible: Pins::of_process().pin(&self.visible), seq: self.seq, drops: self.drops }
    }

    /// Gives the version of the data, by which a later snapshot can tell what has changed.
    pub(crate) fn version(&self) -> Version {
        Version { written: self.seq, dropped: self.drops }
    }

    /// Says whether a snapshot with version `since` saw the same data of the range as this one. False if it is newer
    /// than this one, since it may have seen more.
    pub(crate) fn is_unchanged(
        &self,
        shared: &SnapshotPublisher,
        log: &ChangeLog,
        since: Version,
        range: MillisRange,
    ) -> bool {
        since.written <= self.seq
            && since.dropped == self.drops
            && self.drops == shared.drops()
            && log.first_after(since.written, range).is_none()
    }
}
