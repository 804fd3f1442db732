//! The cache of groups of closed time buckets, by query. A run holds the groups that one read returned; a piece is a
//! bucket of a run. A bucket is valid until something is written into it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use quiver_query::QueryReservation;
use quiver_query::tables::SnapshotVersion;
use quiver_types::Error;
use serde_json::{Value, json};

use super::row_cache::CachedRollup;
use crate::error::OlapResult;

/// The most queries in the cache, including those that came only once.
const QUERIES_MAX: usize = 1024;
/// The most buckets of a query.
const BUCKETS_MAX: usize = 20_000;

/// How a result was made of buckets.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The unit of the buckets: `day`, `hour` or `minute`.
    pub unit: String,
    /// The number of buckets that were cached.
    pub kept: usize,
    /// The number of buckets that were read.
    pub read: usize,
    /// The rows, whose memory is accounted for as long as they are used.
    pub(crate) rows: Arc<CachedRollup>,
}

impl Parts {
    /// The form in which `explain` shows it.
    pub(crate) fn to_json(&self) -> Value {
        json!({"unit": self.unit, "kept": self.kept, "read": self.read})
    }
}

/// The groups that one read returned, sorted by bucket.
#[derive(Debug)]
pub(crate) struct BucketBatch {
    rows: RecordBatch,
    /// The index of the bucket column.
    column: usize,
    /// For each bucket, the range of its groups.
    places: BTreeMap<i64, Range<usize>>,
    /// The moment at which they were read.
    moment: SnapshotVersion,
    bytes: usize,
    /// Its reservation in the pool; `None` if one query alone uses it.
    _memory: Option<QueryReservation>,
}

impl BucketBatch {
    /// Sorts groups by their buckets, which are in `column`.
    ///
    /// # Errors
    ///
    /// A column of another type.
    pub(crate) fn new(
        schema: &SchemaRef,
        batches: &[RecordBatch],
        column: usize,
        moment: SnapshotVersion,
    ) -> OlapResult<Self> {
        let arrow = DataFusionError::from;
        let all = concat_batches(schema, batches).map_err(arrow)?;
        let order = sort_to_indices(all.column(column), None, None).map_err(arrow)?;
        let rows = take_record_batch(&all, &order).map_err(arrow)?;
        let buckets = rows.column(column).as_primitive_opt::<TimestampNanosecondType>();
        let buckets = buckets.ok_or_else(|| Error::internal("a column of buckets has another type"))?.values();
        let mut places: BTreeMap<i64, Range<usize>> = BTreeMap::new();
        for (at, bucket) in buckets.iter().enumerate() {
            places.entry(*bucket).or_insert(at..at).end = at + 1;
        }
        let bytes = rows.get_array_memory_size();
        Ok(Self { rows, column, places, moment, bytes, _memory: None })
    }

    /// Its approximate bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets its memory reservation.
    pub(crate) fn with(self, memory: QueryReservation) -> Self {
        Self { _memory: Some(memory), ..self }
    }

    /// All of its rows. A bucket that starts before `start_ns` gets that start instead, since only the rest of it was
    /// read.
    ///
    /// # Errors
    ///
    /// None are expected.
    pub(crate) fn rows_from(&self, start_ns: i64) -> OlapResult<RecordBatch> {
        if self.places.first_key_value().is_none_or(|(first, _)| *first >= start_ns) {
            return Ok(self.rows.clone());
        }
        let mut columns = self.rows.columns().to_vec();
        let buckets = columns[self.column].as_primitive::<TimestampNanosecondType>();
        let cut: ArrayRef = Arc::new(buckets.unary::<_, TimestampNanosecondType>(|at| at.max(start_ns)));
        columns[self.column] = cut;
        Ok(RecordBatch::try_new(self.rows.schema(), columns).map_err(DataFusionError::from)?)
    }

    /// The groups of a bucket, which may be none.
    fn piece(&self, bucket: i64) -> RecordBatch {
        let place = self.places.get(&bucket).cloned().unwrap_or_default();
        self.rows.slice(place.start, place.len())
    }
}

/// What is cached for a query.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Names and types of the columns at the time of reading: some types depend on the data.
    types: String,
    buckets: BTreeMap<i64, Arc<BucketBatch>>,
    /// The reason why nothing can be cached, and since when, in ns.
    pub(crate) refused: Option<(String, i64)>,
}

impl Pieces {
    /// The entry for a query that cannot be split into buckets.
    pub(crate) fn refused(reason: String, now_ns: i64) -> Self {
        Self { refused: Some((reason, now_ns)), ..Self::default() }
    }

    /// Drops runs with other column types.
    pub(crate) fn of_types(&mut self, types: String) {
        if self.types != types {
            (self.types, self.buckets) = (types, BTreeMap::new());
        }
    }

    /// The groups of a bucket, if they are still valid.
    pub(crate) fn find(&self, bucket: i64, holds: impl Fn(&SnapshotVersion) -> bool) -> Option<RecordBatch> {
        let run = self.buckets.get(&bucket)?;
        holds(&run.moment).then(|| run.piece(bucket))
    }

    /// Caches some buckets of a run.
    pub(crate) fn keep(&mut self, run: &Arc<BucketBatch>, buckets: impl Iterator<Item = i64>) {
        self.buckets.extend(buckets.map(|bucket| (bucket, Arc::clone(run))));
        while self.buckets.len() > BUCKETS_MAX {
            self.buckets.pop_first();
        }
    }

    /// Bytes of all runs.
    pub(crate) fn bytes(&self) -> usize {
        let runs: BTreeMap<*const BucketBatch, usize> =
            self.buckets.values().map(|run| (Arc::as_ptr(run), run.bytes)).collect();
        runs.values().sum::<usize>() + self.buckets.len() * size_of::<(i64, Arc<BucketBatch>)>()
    }
}

/// The holder of the lock reads the buckets; requests that come meanwhile wait and use what was read.
type Place = Arc<futures::lock::Mutex<Pieces>>;

#[derive(Debug)]
struct Entry {
    key: String,
    version: u64,
    place: Place,
    bytes: usize,
    /// Whether the query came before: one that comes once is not worth caching.
    is_admitted: bool,
}

/// When the buckets of a query are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// From its first request on: a model declares them.
    AtOnce,
    /// From its second request on.
    SecondUse,
}

/// The entries of all queries, least recently used first.
#[derive(Debug)]
pub(crate) struct AllPieces {
    entries: Mutex<Vec<Entry>>,
    bytes_max: usize,
}

impl AllPieces {
    /// A cache of this size.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    /// The entry of a query; `None` if it is not admitted yet.
    pub(crate) fn place(&self, key: &str, version: u64, admission: Admission) -> Option<Place> {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.version >= version);
        let entry = if let Some(at) = entries.iter().position(|entry| entry.key == key) {
            Entry { is_admitted: true, ..entries.remove(at) }
        } else {
            let is_admitted = admission == Admission::AtOnce;
            Entry { key: key.to_owned(), version, place: Place::default(), bytes: 0, is_admitted }
        };
        let place = entry.is_admitted.then(|| Arc::clone(&entry.place));
        entries.push(entry);
        self.trim(&mut entries);
        place
    }

    /// Accounts for what is cached for a query, and evicts the least recently used entries.
    pub(crate) fn account(&self, key: &str, bytes: usize) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.bytes = bytes;
        }
        self.trim(&mut entries);
    }

    /// Evicts the least recently used entry that has rows; returns whether there was one.
    pub(crate) fn let_go(&self) -> bool {
        let mut entries = self.entries.lock();
        let oldest = entries.iter().position(|entry| entry.bytes > 0);
        let gone = oldest.map(|at| entries.remove(at));
        drop(entries);
        gone.is_some()
    }

    fn trim(&self, entries: &mut Vec<Entry>) {
        let bytes = |entry: &Entry| entry.bytes + entry.key.len();
        let mut all: usize = entries.iter().map(bytes).sum();
        while entries.len() > 1 && (all > self.bytes_max || entries.len() > QUERIES_MAX) {
            all -= bytes(&entries.remove(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_kept_from_the_second_time_on_and_bounded() {
        let all = AllPieces::new(4096);
        assert!(all.place("a", 1, Admission::SecondUse).is_none());
        let first = all.place("a", 1, Admission::SecondUse).unwrap();
        assert!(Arc::ptr_eq(&first, &all.place("a", 1, Admission::SecondUse).unwrap()));
        for n in 0..5 {
            all.place(&n.to_string(), 1, Admission::SecondUse);
            all.account(&n.to_string(), 1024);
        }
        assert!(all.place("a", 1, Admission::SecondUse).is_none(), "it was not used for longest");
        (0..2 * QUERIES_MAX).for_each(|n| _ = all.place(&n.to_string(), 1, Admission::SecondUse));
        assert!(all.entries.lock().len() <= QUERIES_MAX);
        assert!(all.place("b", 1, Admission::AtOnce).is_some(), "it is worth it from the first time on");
        assert!(all.place("a", 2, Admission::SecondUse).is_none());
        assert_eq!(all.entries.lock().len(), 1, "those of old models are forgotten");
    }

    #[test]
    fn those_not_used_for_longest_go_first() {
        let all = AllPieces::new(4096);
        for key in ["a", "b", "c"] {
            all.place(key, 1, Admission::SecondUse);
        }
        all.account("b", 10);
        all.account("c", 10);
        assert!(all.let_go());
        assert!(all.place("a", 1, Admission::SecondUse).is_some(), "it has nothing to let go");
        assert!(all.place("b", 1, Admission::SecondUse).is_none(), "it is forgotten");
        assert!(all.let_go() && !all.let_go(), "`c` was left");
    }
}
