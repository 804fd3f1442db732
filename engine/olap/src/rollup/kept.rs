//! Rows of rollups, kept while models, rights and tables stay what they are.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use parking_lot::Mutex;
use quiver_types::{Error, ErrorKind};

use crate::error::OlapResult;

/// Bytes of all rollups, and how large each may be.
const KEPT_BYTES_ALL: usize = 64 << 20;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Most rollups that are known, with those that could not be made.
const KEPT_MAX: usize = 256;

/// Rows of a rollup; its columns are `c0`, `c1`, … in the order of its query.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The rows.
    pub(crate) table: Arc<MemTable>,
    /// Types of the columns.
    pub(crate) schema: SchemaRef,
    /// When they were made, in ms.
    pub(crate) made_ms: i64,
    /// About how much they take.
    pub(crate) bytes: usize,
}

impl Kept {
    /// Takes the rows that the query of a rollup gave.
    ///
    /// # Errors
    /// LimitExceeded: they are too many.
    pub(crate) fn new(schema: &SchemaRef, batches: Vec<RecordBatch>, made_ms: i64) -> OlapResult<Self> {
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        if bytes > KEPT_BYTES_MAX {
            let text = format!("its rows take {bytes} bytes, more than the {KEPT_BYTES_MAX} that a rollup may have");
            return Err(Error::new(ErrorKind::LimitExceeded, text).into());
        }
        let field = |(i, f): (usize, &Arc<Field>)| Field::new(format!("c{i}"), f.data_type().clone(), true);
        let fields: Vec<Field> = schema.fields().iter().enumerate().map(field).collect();
        let schema = Arc::new(Schema::new(fields));
        let renamed = |batch: RecordBatch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
        let batches = batches.into_iter().map(renamed).collect::<Result<Vec<_>, _>>();
        let batches = batches.map_err(datafusion::error::DataFusionError::from)?;
        let table = Arc::new(MemTable::try_new(Arc::clone(&schema), vec![batches])?);
        Ok(Self { table, schema, made_ms, bytes })
    }
}

/// The rows of a rollup, or why there are none; nothing yet: who holds the lock makes them.
pub(crate) type Place = Arc<futures::lock::Mutex<Option<Result<Arc<Kept>, String>>>>;

#[derive(Debug)]
struct Entry {
    key: String,
    /// Which models it is of.
    version: u64,
    place: Place,
    bytes: usize,
}

/// Rollups that were made, the last used last.
#[derive(Debug, Default)]
pub(crate) struct Rollups(Mutex<Vec<Entry>>);

impl Rollups {
    /// Gives the place of a rollup.
    pub(crate) fn place(&self, key: &str, version: u64) -> Place {
        let mut entries = self.0.lock();
        // Rollups of models that were replaced are of no use.
        entries.retain(|entry| entry.version >= version);
        let entry = match entries.iter().position(|entry| entry.key == key) {
            Some(at) => entries.remove(at),
            None => Entry { key: key.to_owned(), version, place: Place::default(), bytes: 0 },
        };
        let place = Arc::clone(&entry.place);
        entries.push(entry);
        trim(&mut entries);
        place
    }

    /// Counts the rows of a rollup, and forgets those that were not used for longest.
    pub(crate) fn made(&self, key: &str, bytes: usize) {
        let mut entries = self.0.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.bytes = bytes;
        }
        trim(&mut entries);
    }
}

fn trim(entries: &mut Vec<Entry>) {
    let bytes = |entry: &Entry| entry.bytes + entry.key.len();
    let mut all: usize = entries.iter().map(bytes).sum();
    while entries.len() > 1 && (all > KEPT_BYTES_ALL || entries.len() > KEPT_MAX) {
        all -= bytes(&entries.remove(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollups_are_bounded() {
        let rollups = Rollups::default();
        let first = rollups.place("0", 1);
        assert!(Arc::ptr_eq(&first, &rollups.place("0", 1)), "it is kept");
        for n in 0..6 {
            rollups.place(&n.to_string(), 1);
            rollups.made(&n.to_string(), KEPT_BYTES_MAX);
        }
        assert!(!Arc::ptr_eq(&first, &rollups.place("0", 1)), "it was not used for longest");
        (0..2 * KEPT_MAX).for_each(|n| _ = rollups.place(&n.to_string(), 1));
        assert!(rollups.0.lock().len() <= KEPT_MAX);
        rollups.place("0", 2);
        assert_eq!(rollups.0.lock().len(), 1, "those of old models are forgotten");
    }
}
