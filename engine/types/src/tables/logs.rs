//! Log rows: a part is files `.rows`, `.streams`, `.index`, `.labels`. Rows are sorted by stream, then time; streams stand
//! once per part, rows refer to them by number (`architecture` 3 and 5). The index is absent when it is empty, `.labels`
//! where streams are few enough to be read at once.
//!
//! Beside the fixed columns `.rows` has a column for each field that is common in the part, under the field's own name;
//! the others stand in `__q_fields`. Names that begin with `__q_` are ours: a field of such a name never gets a column.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::columns::{map, nanos};
use super::{FileDef, TableDef};
use crate::logs::{OBSERVED_TIME, SEVERITY_NUMBER, TIME};

/// The table `logs`: log rows and their streams.
pub const TABLE: TableDef = TableDef {
    name: "logs",
    number: 3,
    version: 1,
    files: &[
        FileDef { kind: "rows", schema: rows },
        FileDef { kind: "streams", schema: streams },
        FileDef { kind: "index", schema: index },
        FileDef { kind: "labels", schema: labels },
    ],
    added: &[],
    dynamic: true,
    sort_key: &["__q_stream", TIME],
    time_column: TIME,
    window_ms: 3_600_000,
};

/// Column of the stream's number.
pub const STREAM_NUMBER: &str = "__q_stream";
/// Column of the service.
pub const SERVICE: &str = "__q_service";
/// Column of the fields without a column of their own.
pub const FIELDS: &str = "__q_fields";
/// How names of columns begin that are ours.
pub const OWN_PREFIX: &str = "__q_";

/// Dictionary-coded text, as columns with few values are written.
pub fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
}

/// Fixed columns of `.rows`. The columns of fields follow; severity, time of observation and `__q_fields` are there
/// only when some row has one.
pub fn rows() -> SchemaRef {
    Arc::new(Schema::new(vec![
        nanos(TIME),
        Field::new(STREAM_NUMBER, DataType::UInt32, false),
        Field::new(SERVICE, dictionary(), false),
        Field::new(SEVERITY_NUMBER, DataType::UInt8, true),
        nanos(OBSERVED_TIME).with_nullable(true),
        Field::new(FIELDS, map(), true),
    ]))
}

/// Columns of `.streams`: rows of one stream of two services have two numbers, so that what a caller may see is a set
/// of numbers. Sorted by number; `first_row` ascends, too.
pub fn streams() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("stream", DataType::UInt32, false),
        Field::new("stream_id", DataType::FixedSizeBinary(16), false),
        Field::new("labels", map(), false),
        Field::new("service", DataType::Utf8, false),
        Field::new("first_row", DataType::UInt64, false),
        Field::new("rows", DataType::UInt64, false),
        nanos("min_time"),
        nanos("max_time"),
    ]))
}

/// Columns of `.index`: what is known of a column of `.rows` beside its values; sorted by column, kind, first row.
/// `bloom`: a split-block Bloom filter of the words in some rows.
pub fn index() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("column", DataType::Utf8, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("first_row", DataType::UInt64, false),
        Field::new("rows", DataType::UInt64, false),
        Field::new("payload", DataType::Binary, false),
    ]))
}

/// Columns of `.labels`: which streams have a value of a label, a service, or an identifier; sorted by kind, label, value.
pub fn labels() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("kind", DataType::UInt8, false),
        Field::new("label", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, false),
        Field::new("streams", DataType::Binary, false),
    ]))
}

/// Time of a catalog entry from nanoseconds: the millisecond that holds it.
pub fn millis_of(nanos: i64) -> i64 {
    nanos.div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_round_down() {
        assert_eq!(millis_of(-1), -1);
        assert_eq!(millis_of(1_999_999), 1);
    }
}
