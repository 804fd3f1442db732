//! Metric samples: a part is files `.series`, `.samples`, `.histograms`, `.exemplars`, `.index` (absent when empty).
//! Labels stand once per series and part, samples refer to them by number (`architecture` 3 and 5).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::columns::{map, millis};
use super::{FileDef, TableDef};
use crate::histogram::histogram_fields;

/// The table `metrics`: series with their samples, native histograms and exemplars.
pub const TABLE: TableDef = TableDef {
    name: "metrics",
    number: 1,
    version: 1,
    files: &[
        FileDef { kind: "series", schema: series },
        FileDef { kind: "samples", schema: samples },
        FileDef { kind: "histograms", schema: histograms },
        FileDef { kind: "exemplars", schema: exemplars },
        FileDef { kind: "index", schema: index },
    ],
    added: &[],
    dynamic: false,
    sort_key: &["metric", "labels"],
    time_column: "ts",
    window_ms: 2 * 3_600_000,
};

/// How many of the commonest labels get a column `label.<name>` of their own beside the map.
pub const LABEL_COLUMNS: usize = 16;

/// Columns of `.series` (dynamic columns `label.<name>`, dictionary-coded text, follow).
/// Sorted in series order; `series` is the row's number.
pub fn series() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        Field::new("series_id", DataType::FixedSizeBinary(16), false),
        Field::new("metric", DataType::Utf8, false),
        Field::new("labels", map(), false),
        Field::new("service", DataType::Utf8, false),
        Field::new("samples_first", DataType::UInt64, false),
        Field::new("samples_rows", DataType::UInt64, false),
        Field::new("histograms_first", DataType::UInt64, false),
        Field::new("histograms_rows", DataType::UInt64, false),
        Field::new("exemplars_first", DataType::UInt64, false),
        Field::new("exemplars_rows", DataType::UInt64, false),
        millis("min_time", false),
        millis("max_time", false),
    ]))
}

/// Columns of `.samples`: the value is `coalesce(vf, vi / pow(10, ve))`; sorted by series, ts.
/// `start_ts` is there only in files in which a sender gave one.
pub fn samples() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        millis("ts", false),
        Field::new("ve", DataType::Int8, false),
        Field::new("vi", DataType::Int64, false),
        Field::new("vf", DataType::Float64, true),
        millis("start_ts", true),
    ]))
}

/// Columns of `.histograms`; sorted by series, ts.
pub fn histograms() -> SchemaRef {
    let mut fields = vec![
        Arc::new(Field::new("series", DataType::UInt32, false)),
        Arc::new(millis("ts", false)),
        Arc::new(millis("start_ts", true)),
    ];
    fields.extend(histogram_fields().iter().map(Arc::clone));
    Arc::new(Schema::new(fields))
}

/// Columns of `.exemplars`; sorted by series, ts.
pub fn exemplars() -> SchemaRef {
    let labels = series().field_with_name("labels").expect("a column of series").clone();
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        millis("ts", false),
        Field::new("value", DataType::Float64, false),
        labels,
    ]))
}

/// Columns of `.index`: (label, value) → numbers of the series that have it, as a portable roaring bitmap;
/// sorted by label, value. `__name__` is a label like the others.
pub fn index() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("label", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, false),
        Field::new("series", DataType::Binary, false),
    ]))
}
