//! Tables that store their rows unchanged (`tables::history`): how rows are divided into days, and how they are read.
//!
//! A reader gets whole batches of the rows that it may see. Parts are skipped by their time range; rows are filtered by
//! the caller's services.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch};
use arrow::datatypes::TimestampMillisecondType;
use async_trait::async_trait;
use quiver_types::read_stats::add;
use quiver_types::source::{RowSnapshot, RowSource};
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{SERVICE, TableRows, services_in};
use quiver_types::time::day_of;
use quiver_types::{Access, MillisRange, ReadStats};

use crate::error::{Context, Error, Result, leave_out};
use crate::part::{Part, RowPieces};
use crate::snapshot::{Snapshot, SnapshotPublisher};

/// Rows of a part that are read at once.
const PIECE_ROWS: u64 = 8192;
/// Bytes of a piece: rows that the caller may not see go before the next piece is read.
const PIECE_BYTES: u64 = 16 << 20;

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

/// Gives snapshots of such tables.
pub(crate) struct RowSnapshots(Arc<SnapshotPublisher>);

impl RowSnapshots {
    pub(crate) fn new(shared: Arc<SnapshotPublisher>) -> Self {
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
        Arc::new(StoreRowSnapshot(self.0.snapshot()))
    }
}

/// Rows as they were visible at one moment.
#[derive(Debug)]
struct StoreRowSnapshot(Snapshot);

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
impl RowSnapshot for StoreRowSnapshot {
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
        let mut seen = VisibleRows { table, columns, access, range, stats, rows: Vec::new() };
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
struct VisibleRows<'a> {
    table: &'static TableDef,
    columns: &'a [&'a str],
    access: &'a Access,
    range: MillisRange,
    stats: &'a ReadStats,
    rows: Vec<RecordBatch>,
}

impl VisibleRows<'_> {
    /// Reads a part; rows and columns that were not requested are dropped before the next piece is read.
    async fn part(&mut self, part: &Part, columns: &[&str]) -> Result<()> {
        let Some(mut pieces) = RowPieces::open(part, self.stats).await? else { return Ok(()) };
        while !pieces.is_read() {
            let read = pieces.read(PIECE_ROWS, PIECE_BYTES, Some(columns), self.stats).await?;
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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMillisecondArray};
    use arrow::datatypes::DataType;
    use quiver_types::tables::history::{ALERT_ACTIONS, RULE_EVALUATIONS, services_text};
    use quiver_types::time::DAY_MS;

    use super::*;
    use crate::error::ErrorKind;

    /// Evaluations: time, name of the rule, services.
    fn batch(rows: &[(i64, &str, &str)]) -> RecordBatch {
        let column = |name: &str, kind: &DataType| -> ArrayRef {
            match (name, kind) {
                ("rule_name", _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1))),
                (SERVICE, _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
                (_, DataType::Timestamp(_, zone)) => {
                    let times = rows.iter().map(|row| row.0).collect::<Vec<_>>();
                    Arc::new(TimestampMillisecondArray::from(times).with_timezone_opt(zone.clone()))
                }
                (_, DataType::Utf8) => Arc::new(StringArray::from(vec!["text"; rows.len()])),
                (_, DataType::Float64) => Arc::new(Float64Array::from(vec![0.5; rows.len()])),
                _ => Arc::new(Int64Array::from(vec![7; rows.len()])),
            }
        };
        let schema = RULE_EVALUATIONS.columns();
        let columns = schema.fields().iter().map(|field| column(field.name(), field.data_type())).collect();
        RecordBatch::try_new(schema, columns).unwrap()
    }

    fn names(batch: &RecordBatch) -> Vec<&str> {
        batch["rule_name"].as_string::<i32>().iter().flatten().collect()
    }

    #[test]
    fn days_are_those_of_the_rows() {
        let of = |table, times: &[i64]| {
            let rows = times.iter().map(|&time| (time, "", "")).collect::<Vec<_>>();
            days(&TableRows { table, rows: batch(&rows) })
        };
        assert_eq!(of(&RULE_EVALUATIONS, &[]).unwrap(), [0; 0]);
        assert_eq!(of(&RULE_EVALUATIONS, &[DAY_MS, DAY_MS - 1, 0, -1, -DAY_MS, 2 * DAY_MS - 1]).unwrap(), [-1, 0, 1]);
        let other = of(&ALERT_ACTIONS, &[0]).unwrap_err();
        assert_eq!(
            (other.kind(), &*other.message),
            (ErrorKind::Internal, "rows that are not those of `alert_actions`")
        );
    }

    /// Rows of one time keep the order in which they came: the sort below does not promise that by itself.
    #[test]
    fn rows_of_one_time_keep_their_order() {
        let many: Vec<String> = (0..1000).map(|n| format!("n{n:04}")).collect();
        let same: Vec<(i64, &str, &str)> = many.iter().map(|name| (5, name.as_str(), "")).collect();
        let (first, second) = same.split_at(300);
        let all = by_time(&[
            batch(&[(9, "last", ""), (5, "n", "")]),
            batch(first),
            batch(&[(1, "first", "")]),
            batch(second),
        ]);
        let all = all.unwrap();
        let mut expected = vec!["first", "n"];
        expected.extend(many.iter().map(String::as_str));
        expected.push("last");
        assert_eq!(names(&all), expected);
        assert!(times(&all).unwrap().is_sorted());
        assert_eq!(by_time(&[]).unwrap_err().message, "no rows of a table");
    }

    #[test]
    fn a_day_begins_and_ends_at_midnight() {
        let batches = [
            batch(&[(DAY_MS, "c", ""), (0, "a", ""), (-1, "z", "")]),
            batch(&[]),
            batch(&[(DAY_MS - 1, "b", ""), (2 * DAY_MS - 1, "d", "")]),
        ];
        let of = |day| of_day(&batches, day).map(|rows| names(&rows).join(""));
        assert_eq!([-2, -1, 0, 1, 2].map(|day| of(day).unwrap()), ["", "z", "ab", "cd", ""]);
        assert_eq!(all_days(&batches), BTreeSet::from([-1, 0, 1]));
    }

    #[test]
    fn rows_are_seen_by_those_who_may_see_all_their_services() {
        let both = services_text(["web", "db"]);
        let odd = services_text(["web\ndb"]);
        let rows = [(1, "a", "web"), (2, "b", &*both), (3, "c", ""), (4, "d", "db"), (5, "e", &*odd)];
        let all = batch(&rows);
        let check = |access: &Access, range: (i64, i64), expected: &str| {
            let range = MillisRange::new(range.0, range.1);
            let seen = visible(&RULE_EVALUATIONS, &all, &["outcome", "rule_name"], access, range).unwrap();
            assert_eq!(names(&seen).join(""), expected, "{access:?} {range:?}");
            assert_eq!(
                seen.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(),
                ["outcome", "rule_name"]
            );
        };
        let always = (i64::MIN, i64::MAX);
        check(&Access::full(), always, "abcde");
        check(&Access::full(), (2, 4), "bcd");
        check(&Access::full(), (6, 9), "");
        check(&Access::services(["web"]), always, "a");
        check(&Access::services(["web", "db"]), always, "abd");
        check(&Access::services(["web", "db"]), (2, 2), "b");
        check(&Access::services(["web\ndb"]), always, "e");
        check(&Access::services(["nobody"]), always, "");
        let unknown = visible(&RULE_EVALUATIONS, &all, &["nothing"], &Access::full(), MillisRange::ALL).unwrap_err();
        assert_eq!(unknown.message, "rows of table `rule_evaluations` lack `nothing`");
    }

    #[test]
    fn rows_without_times_or_services_are_a_fault() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let rows = RecordBatch::try_from_iter([("time", Arc::clone(&column))]).unwrap();
        assert_eq!(times(&rows).unwrap_err().message, "rows of a table lack their times", "of another type");
        assert!(all_days(std::slice::from_ref(&rows)).is_empty());
        assert!(of_day(std::slice::from_ref(&rows), 0).is_err());
        let rows = RecordBatch::try_from_iter([("name", column)]).unwrap();
        assert_eq!(by_time(std::slice::from_ref(&rows)).unwrap_err().message, "rows of a table lack their times");
        let seen = visible(&RULE_EVALUATIONS, &rows, &["name"], &Access::full(), MillisRange::ALL).unwrap_err();
        assert_eq!(seen.message, "rows of a table lack their services");
    }
}
