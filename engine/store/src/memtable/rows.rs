//! Rows of tables without series: batches of one generation. Appended by the WAL thread, read by anyone.

use arrow::array::RecordBatch;
use parking_lot::RwLock;
use quiver_types::tables::history::TableRows;

/// The rows of a generation, with the sequence number of their write.
#[derive(Debug, Default)]
pub(crate) struct LiveRows(RwLock<Vec<(u32, TableRows)>>);

impl LiveRows {
    /// Appends rows; returns their memory in bytes.
    pub(crate) fn insert(&self, rows: TableRows, seq: u32) -> usize {
        let bytes = rows.rows.get_array_memory_size() + size_of::<(u32, TableRows)>();
        self.0.write().push((seq, rows));
        bytes
    }

    /// The batches of a table up to a sequence number.
    pub(crate) fn of(&self, table: &str, cut: u32) -> Vec<RecordBatch> {
        let all = self.0.read();
        all.iter().filter(|(seq, rows)| *seq <= cut && rows.table.name == table).map(|(_, r)| r.rows.clone()).collect()
    }
}
