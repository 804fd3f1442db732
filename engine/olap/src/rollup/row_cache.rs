//! The cache of rollups' rows, which are valid as long as models, rights and tables do not change.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use parking_lot::Mutex;
use quiver_query::QueryReservation;
use quiver_query::tables::DomainAccess;
use quiver_types::{Access, Domain, Error, ErrorKind};

use crate::error::OlapResult;

/// Each rollup may take this fraction (1/4) of the memory for all.
const ONE_PART: usize = 4;
/// The most entries, including those that could not be made.
const KEPT_MAX: usize = 256;

/// The rows of a rollup; its columns are `c0`, `c1`, … in the order of its query.
#[derive(Debug)]
pub(crate) struct CachedRollup {
    pub(crate) table: Arc<MemTable>,
    /// Types of the columns.
    pub(crate) schema: SchemaRef,
    /// When they were made, in ms.
    pub(crate) made_ms: i64,
    /// Their approximate bytes.
    pub(crate) bytes: usize,
    /// Their memory reservation in the pool, or in the query that made them.
    _memory: QueryReservation,
}

impl CachedRollup {
    /// Makes a table of the rows that a rollup's query returned.
    ///
    /// # Errors
    ///
    /// Those of making a table.
    pub(crate) fn new(
        schema: &SchemaRef,
        batches: Vec<RecordBatch>,
        made_ms: i64,
        memory: QueryReservation,
    ) -> OlapResult<Self> {
        let bytes = bytes_of(&batches);
        let field = |(i, f): (usize, &Arc<Field>)| Field::new(format!("c{i}"), f.data_type().clone(), true);
        let fields: Vec<Field> = schema.fields().iter().enumerate().map(field).collect();
        let schema = Arc::new(Schema::new(fields));
        let renamed = |batch: RecordBatch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
        let batches = batches.into_iter().map(renamed).collect::<Result<Vec<_>, _>>();
        let batches = batches.map_err(datafusion::error::DataFusionError::from)?;
        let table = Arc::new(MemTable::try_new(Arc::clone(&schema), vec![batches])?);
        Ok(Self { table, schema, made_ms, bytes, _memory: memory })
    }
}

/// The approximate bytes of rows.
pub(crate) fn bytes_of(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::get_array_memory_size).sum()
}

/// The rows of a rollup, or the reason why there are none; `None` if they have not been made, which whoever holds the
/// lock does.
pub(crate) type Place = Arc<futures::lock::Mutex<Option<Result<Arc<CachedRollup>, String>>>>;

#[derive(Debug)]
struct Entry {
    key: String,
    /// The version of the models.
    version: u64,
    place: Place,
    bytes: usize,
}

/// The cached rollups, least recently used first.
#[derive(Debug)]
pub(crate) struct Rollups {
    entries: Mutex<Vec<Entry>>,
    bytes_max: usize,
}

impl Rollups {
    /// A cache of this size.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    /// Refuses rows that are too many for one rollup.
    ///
    /// # Errors
    ///
    /// LimitExceeded.
    pub(crate) fn check(&self, batches: &[RecordBatch]) -> OlapResult<()> {
        let (bytes, most) = (bytes_of(batches), self.bytes_max / ONE_PART);
        if bytes <= most {
            return Ok(());
        }
        let text = format!("its rows take {bytes} bytes, more than the {most} that a rollup may have");
        Err(Error::new(ErrorKind::LimitExceeded, text).into())
    }

    /// The entry of a rollup, which is added if it is missing.
    pub(crate) fn place(&self, key: &str, version: u64) -> Place {
        let mut entries = self.entries.lock();
        // Rollups of replaced models are dropped.
        entries.retain(|entry| entry.version >= version);
        let entry = match entries.iter().position(|entry| entry.key == key) {
            Some(at) => entries.remove(at),
            None => Entry { key: key.to_owned(), version, place: Place::default(), bytes: 0 },
        };
        let place = Arc::clone(&entry.place);
        entries.push(entry);
        trim(&mut entries, self.bytes_max);
        place
    }

    /// Accounts for the rows of a rollup, and evicts the least recently used ones.
    pub(crate) fn account(&self, key: &str, bytes: usize) {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.bytes = bytes;
        }
        trim(&mut entries, self.bytes_max);
    }

    /// Evicts the least recently used rollup that has rows; returns whether there was one.
    pub(crate) fn let_go(&self) -> bool {
        let mut entries = self.entries.lock();
        let oldest = entries.iter().position(|entry| entry.bytes > 0);
        let gone = oldest.map(|at| entries.remove(at));
        drop(entries);
        gone.is_some()
    }
}

fn trim(entries: &mut Vec<Entry>, bytes_max: usize) {
    let bytes = |entry: &Entry| entry.bytes + entry.key.len();
    let mut all: usize = entries.iter().map(bytes).sum();
    while entries.len() > 1 && (all > bytes_max || entries.len() > KEPT_MAX) {
        all -= bytes(&entries.remove(0));
    }
}

/// The caller's rights as a part of a cache key.
pub(super) fn rights(access: &DomainAccess) -> String {
    let of = |access: Access| (access.patterns(), access.segment().to_owned());
    let rights: Vec<_> = Domain::ALL.iter().map(|(domain, ..)| of(access.get(*domain))).collect();
    format!("{rights:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollups_are_bounded() {
        let rollups = Rollups::new(4096);
        let first = rollups.place("0", 1);
        assert!(Arc::ptr_eq(&first, &rollups.place("0", 1)), "it is kept");
        for n in 0..6 {
            rollups.place(&n.to_string(), 1);
            rollups.account(&n.to_string(), 1024);
        }
        assert!(!Arc::ptr_eq(&first, &rollups.place("0", 1)), "it was not used for longest");
        (0..2 * KEPT_MAX).for_each(|n| _ = rollups.place(&n.to_string(), 1));
        assert!(rollups.entries.lock().len() <= KEPT_MAX);
        rollups.place("0", 2);
        assert_eq!(rollups.entries.lock().len(), 1, "those of old models are forgotten");
    }

    #[test]
    fn those_not_used_for_longest_go_first() {
        let rollups = Rollups::new(4096);
        let places = ["a", "b", "c"].map(|key| rollups.place(key, 1));
        rollups.account("b", 10);
        rollups.account("c", 10);
        assert!(rollups.let_go());
        assert!(Arc::ptr_eq(&places[0], &rollups.place("a", 1)), "it has no rows to let go");
        assert!(!Arc::ptr_eq(&places[1], &rollups.place("b", 1)));
        assert!(rollups.let_go() && !rollups.let_go(), "`c` was left");
    }
}
