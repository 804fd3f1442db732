//! Writing the part of a table that has one file, `.rows` (metric metadata).

use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, TimestampMillisecondType};
use parquet::file::properties::EnabledStatistics;
use quiver_types::tables;

use super::file::{PartFile, Unfinished, codec, column, properties};
use super::{NameFilter, PartMeta, PartSpec, SERVICES_MAX};
use crate::error::{Error, Result};

/// Writes a whole part with one file. Rows must come in the order of the table's sort key; the table's time column
/// is in milliseconds, and its service column, if any, is called `__q_service`.
///
/// # Errors
/// Invalid: no rows, an unknown table or columns that are not the table's.
pub fn write_rows_part(root: &Path, spec: PartSpec, batch: &RecordBatch) -> Result<PartMeta> {
    let table = tables::table(&spec.table).ok_or_else(|| Error::invalid(format!("unknown table `{}`", spec.table)))?;
    let file_def = &table.files[0];
    let schema = table.columns();
    if batch.num_rows() == 0 || batch.schema().fields() != schema.fields() {
        return Err(Error::invalid(format!("no rows, or not those of table `{}`", spec.table)));
    }
    let times = batch.column_by_name(table.time_column).and_then(|c| c.as_primitive_opt::<TimestampMillisecondType>());
    let times = times.ok_or_else(|| Error::invalid(format!("table `{}` lacks its time column", spec.table)))?;
    let min_ts = times.values().iter().copied().min().unwrap_or(0);
    let max_ts = times.values().iter().copied().max().unwrap_or(0);
    let mut services = distinct(batch, "__q_service");
    let services_all = services.len() > SERVICES_MAX;
    if services_all {
        services = Vec::new();
    }
    let names = distinct(batch, "metric");
    let mut unfinished = Unfinished::default();
    let mut p = properties()
        .set_compression(codec(spec.compression))
        .set_column_statistics_enabled(column(&[table.sort_key[0]]), EnabledStatistics::Page);
    p = p.set_column_statistics_enabled(column(&[table.time_column]), EnabledStatistics::Page);
    let mut file = PartFile::create(root, &spec, file_def.kind, schema, p.build(), &mut unfinished)?;
    file.write(batch)?;
    let mut meta = PartMeta {
        id: spec.id,
        table: spec.table.clone(),
        day: spec.day,
        level: spec.level,
        place: spec.place,
        min_ts,
        max_ts,
        rows: file.rows(),
        bytes: 0,
        series: 0,
        services,
        services_all,
        names: NameFilter::of(&names.iter().map(String::as_str).collect::<Vec<_>>()),
        has_histograms: false,
        window: spec.window,
        origin: spec.origin.clone(),
        files: Vec::new(),
    };
    file.put_meta(&meta)?;
    meta.files.push(file.finish(&spec, (min_ts, max_ts), table.sort_key)?);
    meta.bytes = meta.files[0].bytes;
    unfinished.keep();
    Ok(meta)
}

/// Sorted distinct texts of a column; none when there is no such column.
fn distinct(batch: &RecordBatch, name: &str) -> Vec<String> {
    let Some(column) = batch.column_by_name(name).filter(|c| *c.data_type() == DataType::Utf8) else {
        return Vec::new();
    };
    let mut texts: Vec<&str> = column.as_string::<i32>().iter().flatten().collect();
    texts.sort_unstable();
    texts.dedup();
    texts.into_iter().map(str::to_owned).collect()
}
