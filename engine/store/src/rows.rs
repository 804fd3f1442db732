//! Tables that keep their rows as they came (`tables::history`): how they are cut into days, and how they are read.
//!
//! A reader gets whole batches of what it may see. Parts are left out by their times; a row is judged by its services.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch};
use arrow::datatypes::TimestampMillisecondType;
use async_trait::async_trait;
use quiver_types::source::{RowSnapshot, RowSource};
use quiver_types::stats::add;
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{SERVICE, TableRows, services_in};
use quiver_types::time::day_of;
use quiver_types::{Access, MillisRange, ReadStats};

use crate::error::{Context, Error, Result, leave_out};
use crate::part::{Part, RowPieces};
use crate::snapshot::{Shared, Snapshot};

/// Rows of a part that are read at once.
const PIECE_ROWS: u64 = 8192;

/// Gives the times of rows.
pub(crate) fn times(batch: &RecordBatch) -> Result<&[i64]> {
    let times = batch.column_by_name("time").and_then(|c| c.as_primitive_opt::<TimestampMillisecondType>());
    times.map(|times| &**times.values()).ok_or_else(|| Error::internal("rows of a table lack their times"))
}

/// Gives the days of rows that are to be written.
///
/// # Errors
/// Internal: they are not the table's.
pub(crate) fn days(rows: &TableRows) -> Result<Vec<i32>> {
    if rows.rows.schema().fields() != rows.table.columns().fields() {
        return Err(Error::internal(format!("rows that are not those of `{}`", rows.table.name)));
    }
    Ok(all_days(std::slice::from_ref(&rows.rows)).into_iter().collect())
}

/// Gives the days of batches.
pub(crate) fn all_days(batches: &[RecordBatch]) -> BTreeSet<i32> {
    batches.iter().flat_map(|batch| times(batch).unwrap_or(&[])).map(|&t| day_of(t)).collect()
}

/// Puts the rows of batches into one, by time.
pub(crate) fn by_time(batches: &[RecordBatch]) -> Result<RecordBatch> {
    let first = batches.first().ok_or_else(|| Error::internal("no rows of a table"))?;
    let all = concat_batches(&first.schema(), batches).internal("batches of a table differ")?;
    let time = all.column_by_name("time").ok_or_else(|| Error::internal("rows of a table lack their times"))?;
    // The sort is not stable: the place decides among rows of one time.
    let place = Arc::new(UInt32Array::from_iter_values(0..all.num_rows() as u32));
    let keys = [Arc::clone(time), place].map(|values| SortColumn { values, options: None });
    let order = lexsort_to_indices(&keys, None).internal("times cannot be sorted")?;
    take_record_batch(&all, &order).internal("rows cannot be put in order")
}

/// Gives the rows of a day, by time.
pub(crate) fn of_day(batches: &[RecordBatch], day: i32) -> Result<RecordBatch> {
    let mut here = Vec::new();
    for batch in batches {
        let keep: BooleanArray = times(batch)?.iter().map(|&t| Some(day_of(t) == day)).collect();
        here.push(filter_record_batch(batch, &keep).internal("rows cannot be filtered")?);
    }
    by_time(&here)
}

/// Gives snapshots to whoever reads such tables.
pub(crate) struct RowSnapshots(Arc<Shared>);

impl RowSnapshots {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl fmt::Debug for RowSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowSnapshots")
    }
}

impl RowSource for RowSnapshots {
    fn snapshot(&self) -> Arc<dyn RowSnapshot> {
        Arc::new(Pinned(self.0.snapshot()))
    }
}

/// One moment.
#[derive(Debug)]
struct Pinned(Snapshot);

/// Keeps what a caller may see of a range, and puts the columns in the order that was asked for.
fn visible(
    table: &TableDef,
    batch: &RecordBatch,
    columns: &[&str],
    access: &Access,
    range: MillisRange,
) -> Result<RecordBatch> {
    let services = batch.column_by_name(SERVICE).and_then(|c| c.as_string_opt::<i32>());
    let services = services.ok_or_else(|| Error::internal("rows of a table lack their services"))?;
    let may = |i: usize| access.is_full() || services_in(services.value(i)).all(|service| access.allows(&service));
    let keep: BooleanArray =
        times(batch)?.iter().enumerate().map(|(i, &t)| Some(range.contains(t) && may(i))).collect();
    let wanted = table.chosen(batch, columns)?;
    if keep.true_count() == keep.len() {
        return Ok(wanted);
    }
    filter_record_batch(&wanted, &keep).internal("rows cannot be filtered")
}

#[async_trait]
impl RowSnapshot for Pinned {
    async fn rows(
        &self,
        table: &'static TableDef,
        columns: &[&str],
        access: &Access,
        range: MillisRange,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let mut read: Vec<&str> = columns.to_vec();
        read.extend(["time", SERVICE].into_iter().filter(|name| !columns.contains(name)));
        let mut seen = Seen { table, columns, access, range, stats, rows: Vec::new() };
        let parts = self.0.visible.table(table.name);
        add(&stats.parts_total, parts.len() as u64);
        for part in parts {
            if !range.overlaps(&MillisRange::new(part.meta.min_ts, part.meta.max_ts)) {
                continue;
            }
            add(&stats.parts_read, 1);
            let whole = seen.rows.len();
            if let Err(e) = seen.part(part, &read).await {
                leave_out(stats, e)?;
                // Of a damaged part nothing is shown.
                seen.rows.truncate(whole);
            }
        }
        for generation in &self.0.visible.generations {
            generation.table_rows(table.name, self.0.seq).iter().try_for_each(|batch| seen.batch(batch))?;
        }
        Ok(seen.rows)
    }
}

/// What a caller sees of the rows that he asked for.
struct Seen<'a> {
    table: &'static TableDef,
    columns: &'a [&'a str],
    access: &'a Access,
    range: MillisRange,
    stats: &'a ReadStats,
    rows: Vec<RecordBatch>,
}

impl Seen<'_> {
    /// Reads a part; what nobody asked for is gone before the next piece is read.
    async fn part(&mut self, part: &Part, columns: &[&str]) -> Result<()> {
        let Some(mut pieces) = RowPieces::open(part, self.stats).await? else { return Ok(()) };
        while !pieces.is_read() {
            let read = pieces.read(PIECE_ROWS, Some(columns), self.stats).await?;
            read.iter().try_for_each(|batch| self.batch(batch))?;
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = visible(self.table, batch, self.columns, self.access, self.range)?;
        if batch.num_rows() > 0 {
            self.stats.take(batch.get_array_memory_size())?;
            self.rows.push(batch);
        }
        self.stats.check()
    }
}
