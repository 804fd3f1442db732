//! Physical tables as data: one file per table, one slice that lists them.
//!
//! Store, compaction, retention and documents read [`TABLES`]; nothing else names a table's columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Fields, Schema, SchemaRef};

use crate::{Error, Result};

pub mod columns;
pub mod history;
pub mod logs;
pub mod metric_metadata;
pub mod metrics;
pub mod record_tables;
pub mod spans;
pub mod usage;

/// A physical table.
#[derive(Debug, Clone, Copy)]
pub struct TableDef {
    /// Name in the catalog, and of the folder of its parts in the object store.
    pub name: &'static str,
    /// Number in WAL records. Never reused.
    pub number: u16,
    /// Version of the columns of its WAL records and files.
    pub version: u16,
    /// The files of a part, the main one first.
    pub files: &'static [FileDef],
    /// Columns added to the main file later, doubles or texts, each with the version that added it. Older rows have NaN, and
    /// the empty text.
    pub added: &'static [(&'static str, u16)],
    /// Whether records may carry columns beside the fixed ones (logs, spans).
    pub dynamic: bool,
    /// Sort key of the rows in the main file.
    pub sort_key: &'static [&'static str],
    /// Name of the time column by whose UTC day the table is partitioned.
    pub time_column: &'static str,
    /// Length of an aligned level 1 window in milliseconds.
    pub window_ms: i64,
}

impl TableDef {
    /// Gives the fixed columns of the main file.
    pub fn columns(&self) -> SchemaRef {
        (self.files[0].schema)()
    }

    /// Gives the fixed columns that a version of the table had.
    pub fn columns_of(&self, version: u16) -> SchemaRef {
        let all = self.columns();
        let had = |name: &str| self.added.iter().all(|(added, since)| *added != name || *since <= version);
        Arc::new(Schema::new(all.fields().iter().filter(|f| had(f.name())).cloned().collect::<Fields>()))
    }

    /// Selects columns of rows that any version may have written.
    ///
    /// # Errors
    /// Internal: they have no such column.
    pub fn chosen(&self, rows: &RecordBatch, columns: &[&str]) -> Result<RecordBatch> {
        let (schema, all) = (rows.schema(), self.columns());
        let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
        for name in columns {
            let is_added = self.added.iter().any(|(added, _)| added == name);
            if let Some((at, field)) = schema.fields().find(name) {
                fields.push(Arc::clone(field));
                arrays.push(Arc::clone(rows.column(at)));
            } else if let Some((_, field)) = all.fields().find(name).filter(|_| is_added) {
                fields.push(Arc::clone(field));
                arrays.push(match field.data_type() {
                    DataType::Utf8 => Arc::new(StringArray::from(vec![""; rows.num_rows()])),
                    _ => Arc::new(Float64Array::from(vec![f64::NAN; rows.num_rows()])),
                });
            } else {
                return Err(Error::internal(format!("rows of table `{}` lack `{name}`", self.name)));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let chosen = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
        chosen.map_err(|e| Error::internal("columns cannot be chosen").with_source(e))
    }

    /// Gives rows that any version may have written with all columns of the current version.
    ///
    /// # Errors
    /// As [`Self::chosen`].
    pub fn completed(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let all = self.columns();
        self.chosen(rows, &all.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>())
    }
}

/// One kind of file of a part: `<part>.<kind>.parquet`.
#[derive(Debug, Clone, Copy)]
pub struct FileDef {
    /// Kind, as in the file's name.
    pub kind: &'static str,
    /// Arrow schema of the fixed columns.
    pub schema: fn() -> SchemaRef,
}

/// All physical tables that the store knows.
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

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, new_empty_array};
    use arrow::datatypes::Float64Type;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        for (i, a) in TABLES.iter().enumerate() {
            assert!(TABLES[i + 1..].iter().all(|b| a.name != b.name && a.number != b.number), "{}", a.name);
            for file in a.files {
                assert!(!(file.schema)().fields().is_empty(), "{}.{}", a.name, file.kind);
            }
            for (name, since) in a.added {
                let columns = a.columns();
                let field = columns.field_with_name(name).expect(name);
                let is_one =
                    matches!(field.data_type(), DataType::Float64 | DataType::Utf8) && (2..=a.version).contains(since);
                assert!(is_one && a.columns_of(since - 1).field_with_name(name).is_err(), "{}.{name}", a.name);
            }
        }
    }

    #[test]
    fn rows_of_before_have_nothing_in_columns_that_came_later() {
        let table = TableDef { version: 2, added: &[("value", 2)], ..history::ALERT_EVENTS };
        let (now, before) = (table.columns(), table.columns_of(1));
        assert_eq!((now.fields().len() - 1, table.columns_of(2)), (before.fields().len(), Arc::clone(&now)));
        let columns = before.fields().iter().map(|field| new_empty_array(field.data_type())).collect();
        let none = table.completed(&RecordBatch::try_new(before, columns).unwrap()).unwrap();
        assert_eq!(none.schema().fields(), now.fields());
        let text = |text: &str| Arc::new(StringArray::from(vec![text, text])) as ArrayRef;
        let rows = RecordBatch::try_from_iter([("source", text("rule")), ("rule_id", text("1"))]).unwrap();
        let chosen = table.chosen(&rows, &["value", "source"]).unwrap();
        let values = chosen.column(0).as_primitive::<Float64Type>();
        assert!(values.len() == 2 && values.values().iter().all(|value| value.is_nan()));
        assert_eq!(chosen.column(1), rows.column(0));
        let table = TableDef { version: 2, added: &[("rule_name", 2)], ..history::ALERT_EVENTS };
        let texts = table.chosen(&rows, &["rule_name"]).unwrap();
        assert_eq!(texts.column(0), &text(""));
        assert_eq!(table.chosen(&rows, &[]).unwrap().num_rows(), 2);
        assert!(table.chosen(&rows, &["time"]).unwrap_err().message.contains("lack `time`"), "it was always there");
    }

    /// Parts are sorted and divided by columns that are there, whichever table it is.
    #[test]
    fn keys_and_times_are_columns() {
        for table in TABLES {
            let columns = table.columns();
            // Spans are sorted by the minute of their start, series by their labels' order.
            let keys = table.sort_key.iter().filter(|key| **key != "minute");
            for key in keys.chain((table.name != "metrics").then_some(&table.time_column)) {
                assert!(columns.field_with_name(key).is_ok(), "{}.{key}", table.name);
            }
            assert_eq!((table.columns_of(table.version), table.window_ms > 0), (columns, true), "{}", table.name);
            assert_eq!(table_named(table.name), Some(table.number));
            let kinds: std::collections::HashSet<&str> = table.files.iter().map(|file| file.kind).collect();
            assert_eq!(kinds.len(), table.files.len(), "{}", table.name);
        }
        assert_eq!(table_named("Metrics"), None);
    }

    fn table_named(name: &str) -> Option<u16> {
        table(name).map(|table| table.number)
    }

    #[test]
    fn tables_of_rows_are_found_by_their_numbers() {
        for of in record_tables::TABLES {
            assert_eq!(record_tables::numbered(of.number).map(|found| found.name), Some(of.name));
            let columns = of.columns();
            // Nothing is NULL at rest, and who may see a row must see its services.
            assert!(columns.fields().iter().all(|field| !field.is_nullable()), "{}", of.name);
            assert!(columns.field_with_name(history::SERVICE).is_ok() && !of.dynamic, "{}", of.name);
        }
        assert!([0, metrics::TABLE.number, logs::TABLE.number].iter().all(|n| record_tables::numbered(*n).is_none()));
    }
}
