//! Physical tables as data: one file per table, one slice that lists them.
//!
//! Store, compaction, retention and documents read [`TABLES`]; nothing else names a table's columns.

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};

pub mod history;
pub mod logs;
pub mod metric_metadata;
pub mod metrics;
pub mod spans;
pub mod usage;

/// A physical table.
#[derive(Debug, Clone, Copy)]
pub struct TableDef {
    /// Name: first folder of its parts in the object store, and what the catalog calls it.
    pub name: &'static str,
    /// Number in WAL records. Never reused.
    pub number: u16,
    /// Version of the columns of its WAL records and files.
    pub version: u16,
    /// The files of a part, the main one first.
    pub files: &'static [FileDef],
    /// Whether records may carry columns beside the fixed ones (logs, spans).
    pub dynamic: bool,
    /// Sort key of the rows in the main file.
    pub sort_key: &'static [&'static str],
    /// Name of the time column by whose UTC day the table is partitioned.
    pub time_column: &'static str,
    /// Length of an aligned level 1 window in milliseconds.
    pub window_ms: i64,
}

/// One kind of file of a part: `<part>.<kind>.parquet`.
#[derive(Debug, Clone, Copy)]
pub struct FileDef {
    /// Kind, as it stands in the file's name.
    pub kind: &'static str,
    /// Arrow schema of the fixed columns.
    pub schema: fn() -> SchemaRef,
}

/// All tables.
pub const TABLES: &[TableDef] = &[
    metrics::TABLE,
    metric_metadata::TABLE,
    logs::TABLE,
    spans::TABLE,
    history::ALERT_EVENTS,
    history::ALERT_ACTIONS,
    history::RULE_EVALUATIONS,
    history::NOTIFICATIONS,
    usage::QUERY_LOG,
    usage::STORAGE_STATS,
    usage::RESOURCE_HEALTH,
    usage::INGEST_USAGE,
];

/// Finds a table by name.
pub fn table(name: &str) -> Option<&'static TableDef> {
    TABLES.iter().find(|t| t.name == name)
}

/// Gives a required time column in milliseconds UTC.
pub(crate) fn millis(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), nullable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        for (i, a) in TABLES.iter().enumerate() {
            assert!(TABLES[i + 1..].iter().all(|b| a.name != b.name && a.number != b.number), "{}", a.name);
            for file in a.files {
                assert!(!(file.schema)().fields().is_empty(), "{}.{}", a.name, file.kind);
            }
        }
    }
}
