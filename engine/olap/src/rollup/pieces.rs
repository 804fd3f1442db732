//! Groups of closed buckets of time, kept by what a query is made of.
//!
//! What one reading gave is a run; a bucket is a piece of it. A bucket holds while nobody writes into it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion::error::DataFusionError;
use parking_lot::Mutex;
use quiver_query::Collected;
use quiver_query::tables::Moment;
use quiver_types::Error;
use serde_json::{Value, json};

use super::kept::Kept;
use crate::error::OlapResult;

/// Most queries that are known, with those that came once.
const QUERIES_MAX: usize = 1024;
/// Most buckets of a query.
const BUCKETS_MAX: usize = 20_000;

/// How an answer was made of buckets.
#[derive(Debug, Clone)]
pub struct Parts {
    /// How long each bucket is: `day`, `hour` or `minute`.
    pub unit: String,
    /// Number of buckets whose groups were kept.
    pub kept: usize,
    /// Number of buckets whose rows were read.
    pub read: usize,
    /// The rows, counted as long as somebody reads them.
    pub(crate) rows: Arc<Kept>,
}

impl Parts {
    /// As `explain` shows it.
    pub(crate) fn to_json(&self) -> Value {
        json!({"unit": self.unit, "kept": self.kept, "read": self.read})
    }
}

/// Groups that one reading gave, those of each bucket together.
#[derive(Debug)]
pub(crate) struct Run {
    rows: RecordBatch,
    /// The column of their buckets.
    column: usize,
    /// Where groups of buckets lie.
    places: BTreeMap<i64, Range<usize>>,
    /// What was read.
    moment: Moment,
    bytes: usize,
    /// Its place in the pool; none: it is of use for one query alone.
    _memory: Option<Collected>,
}

impl Run {
    /// Puts groups in the order of their buckets, which stand in a column.
    ///
    /// # Errors
    /// A column of another type.
    pub(crate) fn new(schema: &SchemaRef, batches: &[RecordBatch], column: usize, moment: Moment) -> OlapResult<Self> {
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

    /// About how much it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives it a place.
    pub(crate) fn with(self, memory: Collected) -> Self {
        Self { _memory: Some(memory), ..self }
    }

    /// All of its rows, those of a bucket that begins before a moment as of that moment: of it only the rest was read.
    ///
    /// # Errors
    /// None that are to be expected.
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

    /// The groups of a bucket; a bucket without any has no rows.
    fn piece(&self, bucket: i64) -> RecordBatch {
        let place = self.places.get(&bucket).cloned().unwrap_or_default();
        self.rows.slice(place.start, place.len())
    }
}

/// What is kept of a query.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Names and types of the columns that were read: some are typed as the data is.
    types: String,
    buckets: BTreeMap<i64, Arc<Run>>,
    /// Why it has none, and since when, in ns.
    pub(crate) refused: Option<(String, i64)>,
}

impl Pieces {
    /// Of a query that cannot be made of buckets: why, and since when, in ns.
    pub(crate) fn refused(reason: String, now_ns: i64) -> Self {
        Self { refused: Some((reason, now_ns)), ..Self::default() }
    }

    /// Forgets what was made of other columns.
    pub(crate) fn of_types(&mut self, types: String) {
        if self.types != types {
            (self.types, self.buckets) = (types, BTreeMap::new());
        }
    }

    /// The groups of a bucket, as long as what they were made of holds.
    pub(crate) fn find(&self, bucket: i64, holds: impl Fn(&Moment) -> bool) -> Option<RecordBatch> {
        let run = self.buckets.get(&bucket)?;
        holds(&run.moment).then(|| run.piece(bucket))
    }

    /// Keeps some buckets of a run.
    pub(crate) fn keep(&mut self, run: &Arc<Run>, buckets: impl Iterator<Item = i64>) {
        self.buckets.extend(buckets.map(|bucket| (bucket, Arc::clone(run))));
        while self.buckets.len() > BUCKETS_MAX {
            self.buckets.pop_first();
        }
    }

    /// Bytes of all runs.
    pub(crate) fn bytes(&self) -> usize {
        let runs: BTreeMap<*const Run, usize> =
            self.buckets.values().map(|run| (Arc::as_ptr(run), run.bytes)).collect();
        runs.values().sum::<usize>() + self.buckets.len() * size_of::<(i64, Arc<Run>)>()
    }
}

/// Who holds the lock reads; who comes meanwhile waits for what he finds.
type Place = Arc<futures::lock::Mutex<Pieces>>;

#[derive(Debug)]
struct Entry {
    key: String,
    version: u64,
    place: Place,
    bytes: usize,
    /// Whether it came before: what comes once is not worth it.
    again: bool,
}

/// Pieces of all queries, the last used last.
#[derive(Debug)]
pub(crate) struct AllPieces {
    entries: Mutex<Vec<Entry>>,
    bytes_max: usize,
}

impl AllPieces {
    /// Keeps so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    /// The place of a query; none: it comes for the first time, and is not `declared` to be worth it.
    pub(crate) fn place(&self, key: &str, version: u64, declared: bool) -> Option<Place> {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.version >= version);
        let entry = match entries.iter().position(|entry| entry.key == key) {
            Some(at) => Entry { again: true, ..entries.remove(at) },
            None => Entry { key: key.to_owned(), version, place: Place::default(), bytes: 0, again: declared },
        };
        let place = entry.again.then(|| Arc::clone(&entry.place));
        entries.push(entry);
        self.trim(&mut entries);
        place
    }

    /// Counts what is kept of a query, and forgets what was not used for longest.
    pub(crate) fn made(&self, key: &str, bytes: usize) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.bytes = bytes;
        }
        self.trim(&mut entries);
    }

    /// Lets what is kept of the query go that was not used for longest, of those that have rows; says whether there was one.
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
        assert!(all.place("a", 1, false).is_none());
        let first = all.place("a", 1, false).unwrap();
        assert!(Arc::ptr_eq(&first, &all.place("a", 1, false).unwrap()));
        for n in 0..5 {
            all.place(&n.to_string(), 1, false);
            all.made(&n.to_string(), 1024);
        }
        assert!(all.place("a", 1, false).is_none(), "it was not used for longest");
        (0..2 * QUERIES_MAX).for_each(|n| _ = all.place(&n.to_string(), 1, false));
        assert!(all.entries.lock().len() <= QUERIES_MAX);
        assert!(all.place("b", 1, true).is_some(), "it is worth it from the first time on");
        assert!(all.place("a", 2, false).is_none());
        assert_eq!(all.entries.lock().len(), 1, "those of old models are forgotten");
    }

    #[test]
    fn those_not_used_for_longest_go_first() {
        let all = AllPieces::new(4096);
        for key in ["a", "b", "c"] {
            all.place(key, 1, false);
        }
        all.made("b", 10);
        all.made("c", 10);
        assert!(all.let_go());
        assert!(all.place("a", 1, false).is_some(), "it has nothing to let go");
        assert!(all.place("b", 1, false).is_none(), "it is forgotten");
        assert!(all.let_go() && !all.let_go(), "`c` was left");
    }
}
