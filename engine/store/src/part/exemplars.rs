//! Reads `.exemplars`: the exemplars of metric series.

use arrow::array::{Array, AsArray, MapArray};
use arrow::datatypes::{Float64Type, TimestampMillisecondType};
use quiver_types::{LabelSet, MillisRange, ReadStats, read_stats};

use super::SeriesRows;
use super::byte_ranges::{Purpose, Selection};
use super::footer::damaged;
use super::histogram_samples::{RowsOf, spans};
use super::reader::Part;
use crate::error::Result;
use crate::series_run::RunExemplar;

const BATCH_ROWS: usize = 8192;

impl Part {
    /// Reads the exemplars of series within a time range. Returns one list per entry of `wanted`; `wanted` must be
    /// ascending row ranges (from [`super::PartSeries::exemplars`]).
    ///
    /// # Errors
    /// As [`Part::read_floats`].
    pub async fn read_exemplars(
        &self,
        wanted: &[SeriesRows],
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<Vec<RunExemplar>>> {
        self.exemplars_for(wanted, range, Purpose::Query, stats).await
    }

    pub(super) async fn exemplars_for(
        &self,
        wanted: &[SeriesRows],
        range: MillisRange,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<Vec<RunExemplar>>> {
        let mut out = vec![Vec::new(); wanted.len()];
        let Some(file) = self.meta.file("exemplars").filter(|_| wanted.iter().any(|w| w.rows > 0)) else {
            return Ok(out);
        };
        let footer = self.footer(file, stats).await?;
        read_stats::add(&stats.pages_total, footer.pages());
        let batches =
            self.read_batches(file, &footer, Selection::of(&spans(wanted), BATCH_ROWS), purpose, stats).await?;
        let mut rows = RowsOf::new(wanted);
        let wrong = || damaged(&file.key, "its columns are not those of exemplars");
        for batch in batches {
            let ts = batch
                .column_by_name("ts")
                .and_then(|c| c.as_primitive_opt::<TimestampMillisecondType>())
                .ok_or_else(wrong)?;
            let values =
                batch.column_by_name("value").and_then(|c| c.as_primitive_opt::<Float64Type>()).ok_or_else(wrong)?;
            let labels = batch.column_by_name("labels").and_then(|c| c.as_map_opt()).ok_or_else(wrong)?;
            for row in 0..batch.num_rows() {
                let Some(i) = rows.next() else { return Err(damaged(&file.key, "it has more rows than asked for")) };
                if range.contains(ts.value(row)) {
                    let labels = label_set(labels, row).ok_or_else(wrong)?;
                    out[i].push(RunExemplar { ts: ts.value(row), value: values.value(row), labels });
                }
            }
        }
        if !rows.done() {
            return Err(damaged(&file.key, "it has fewer rows than asked for"));
        }
        Ok(out)
    }
}

/// Reads the label set in a row of a map column.
fn label_set(column: &MapArray, row: usize) -> Option<LabelSet> {
    let entries = column.value(row);
    let (names, values) = (entries.column(0).as_string_opt::<i32>()?, entries.column(1).as_string_opt::<i32>()?);
    Some(LabelSet::from_pairs((0..entries.len()).map(|i| (names.value(i), values.value(i)))))
}
