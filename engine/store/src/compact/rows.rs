//! Merges parts of tables without series by time, holding only a piece of each input in memory: a busy server records
//! millions of queries and rule evaluations a day.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use quiver_types::ReadStats;
use quiver_types::tables::{self, TableDef};

use super::output::{begin_output, same_rows};
use super::plan::Plan;
use crate::core::{Core, Job};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::part::{Part, PartMeta, RowPieces, RowsPartWriter};
use crate::record_tables::{by_time, times};

/// Approximate number of rows held of all inputs together.
const HELD_ROWS: u64 = 32_768;
/// Minimum rows of a piece: smaller ones would decode the same pages too often.
const PIECE_ROWS_MIN: u64 = 512;
/// A piece may take these bytes, however many inputs there are, for the same reason.
const PIECE_BYTES_MIN: u64 = 64 << 10;

pub(super) async fn merge_rows(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<PartMeta> {
    let unknown = || Error::internal(format!("unknown table `{}`", plan.table));
    let table = tables::table(&plan.table).ok_or_else(unknown)?;
    // What is due is copied twice to be put in order: a quarter is held, and two are the copies.
    let mut merging = RowMerger::open(table, inputs, core.settings.compaction_memory_bytes() / 4).await?;
    let mut out = RowsPartWriter::create(&core.output.root, begin_output(core, job, plan, inputs, 0).await?)?;
    while let Some(rows) = merging.next().await? {
        out.push(&rows)?;
    }
    let meta = out.finish()?;
    let rows: u64 = inputs.iter().map(|input| input.meta.rows).sum();
    if meta.rows != rows {
        return Err(Error::internal(format!("of {rows} rows of `{}` {} were merged", plan.table, meta.rows)));
    }
    failpoint::hit("compact.after-part");
    Ok(meta)
}

/// An input; its rows are sorted by time.
struct Head<'a> {
    pieces: RowPieces<'a>,
    /// Rows that were read but not returned yet.
    rows: Option<RecordBatch>,
}

/// Merges the rows of all inputs by time. Rows with equal times keep the order of their input.
struct RowMerger<'a> {
    table: &'static TableDef,
    heads: Vec<Head<'a>>,
    piece_rows: u64,
    piece_bytes: u64,
}

impl<'a> RowMerger<'a> {
    /// Begins. The rows of all inputs that are held take about `held_bytes`.
    async fn open(table: &'static TableDef, inputs: &'a [Arc<Part>], held_bytes: u64) -> Result<Self> {
        let mut heads = Vec::with_capacity(inputs.len());
        for input in inputs {
            let pieces = RowPieces::open(input, &ReadStats::default()).await?;
            let pieces = pieces.ok_or_else(|| Error::internal(format!("part `{}` has no rows", input.meta.id)))?;
            same_rows(input, "rows", input.meta.rows, pieces.total())?;
            heads.push(Head { pieces, rows: None });
        }
        let each = (inputs.len() as u64).max(1);
        let piece_rows = (HELD_ROWS / each).max(PIECE_ROWS_MIN);
        let piece_bytes = (held_bytes / each).max(PIECE_BYTES_MIN);
        Ok(Self { table, heads, piece_rows, piece_bytes })
    }

    /// The next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        // Unread rows of an input are not earlier than the last row read from it.
        let mut until: Option<i64> = None;
        for head in &mut self.heads {
            head.fill(self.table, self.piece_rows, self.piece_bytes).await?;
            if let Some(rows) = head.rows.as_ref().filter(|_| !head.pieces.is_read()) {
                let last = times(rows)?.last().copied();
                until = until.into_iter().chain(last).min();
            }
        }
        let mut due = Vec::with_capacity(self.heads.len());
        for head in &mut self.heads {
            due.extend(head.take(until)?);
        }
        if due.is_empty() { Ok(None) } else { by_time(&due).map(Some) }
    }
}

impl Head<'_> {
    /// Reads the next piece if there are no rows left.
    async fn fill(&mut self, table: &TableDef, rows: u64, bytes: u64) -> Result<()> {
        while self.rows.is_none() && !self.pieces.is_read() {
            let read = self.pieces.read(rows, bytes, None, &ReadStats::default()).await?;
            let read = read.iter().map(|batch| table.completed(batch)).collect::<Result<Vec<_>>>()?;
            let piece = concat_batches(&table.columns(), &read).internal("batches of a table differ")?;
            self.rows = Some(piece).filter(|piece| piece.num_rows() > 0);
        }
        Ok(())
    }

    /// Takes the rows up to a time (`None` means all).
    fn take(&mut self, until: Option<i64>) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.rows.take() else { return Ok(None) };
        let due = match until {
            Some(until) => times(&rows)?.partition_point(|&time| time <= until),
            None => rows.num_rows(),
        };
        self.rows = (due < rows.num_rows()).then(|| rows.slice(due, rows.num_rows() - due));
        Ok((due > 0).then(|| rows.slice(0, due)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Int64Type};
    use quiver_types::tables::history::RULE_EVALUATIONS;
    use quiver_types::time::DAY_MS;
    use uuid::Uuid;

    use super::*;
    use crate::cache::Caches;
    use crate::io::LocalIo;
    use crate::part::{PartCompression, PartOrigin, PartSpec, Place, write_rows_part};

    const DAY: i32 = 20_000;
    const START: i64 = 20_000 * DAY_MS;
    const ROWS: i64 = 30_000;

    fn spec() -> PartSpec {
        PartSpec {
            table: RULE_EVALUATIONS.name.to_owned(),
            day: DAY,
            level: 0,
            id: Uuid::now_v7(),
            origin: PartOrigin::Flushed {
                writer: Uuid::nil(),
                generation: 1,
                flush_id: Uuid::max(),
                output: 0,
                outputs: 1,
            },
            place: Place::Store,
            window: 0,
            compression: PartCompression::Fresh,
        }
    }

    /// Rows of these times and numbers.
    fn batch(rows: &[(i64, i64)]) -> RecordBatch {
        batch_of("text", rows)
    }

    /// The same, with this text in all columns of texts.
    fn batch_of(text: &str, rows: &[(i64, i64)]) -> RecordBatch {
        let (times, numbers): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        let column = |kind: &DataType| -> ArrayRef {
            match kind {
                DataType::Timestamp(_, zone) => {
                    Arc::new(TimestampMillisecondArray::from(times.clone()).with_timezone_opt(zone.clone()))
                }
                DataType::Utf8 => Arc::new(StringArray::from(vec![text; rows.len()])),
                DataType::Float64 => Arc::new(Float64Array::from(vec![0.5; rows.len()])),
                _ => Arc::new(Int64Array::from(numbers.clone())),
            }
        };
        let schema = RULE_EVALUATIONS.columns();
        let columns = schema.fields().iter().map(|field| column(field.data_type())).collect();
        RecordBatch::try_new(schema, columns).unwrap()
    }

    fn told(batch: &RecordBatch) -> Vec<(i64, i64)> {
        let numbers = batch["result_series"].as_primitive::<Int64Type>();
        times(batch).unwrap().iter().copied().zip(numbers.values().iter().copied()).collect()
    }

    fn open(root: &Path, meta: PartMeta) -> Arc<Part> {
        Arc::new(Part::new(meta, Arc::new(LocalIo::new(root, root)), Arc::new(Caches::local(64 << 20))))
    }

    #[tokio::test]
    async fn inputs_are_merged_a_piece_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        // The times of one input are all the same, those of the others cross.
        let rows = |n: i64| (0..ROWS).map(|i| (START + i / 7 * n, n * ROWS + i)).collect::<Vec<_>>();
        let all: Vec<Vec<(i64, i64)>> = (0..4).map(rows).collect();
        let write = |rows: &Vec<(i64, i64)>| write_rows_part(dir.path(), spec(), &batch(rows)).unwrap();
        let parts: Vec<Arc<Part>> = all.iter().map(|rows| open(dir.path(), write(rows))).collect();
        let mut merging = RowMerger::open(&RULE_EVALUATIONS, &parts, u64::MAX).await.unwrap();
        let mut writer = RowsPartWriter::create(dir.path(), spec()).unwrap();
        let (mut found, mut batches) = (Vec::new(), 0);
        while let Some(batch) = merging.next().await.unwrap() {
            assert!(batch.num_rows() as u64 <= HELD_ROWS, "{} rows at once", batch.num_rows());
            writer.push(&batch).unwrap();
            found.extend(told(&batch));
            batches += 1;
        }
        assert!(batches >= 4, "{batches} batches");
        assert!(found.is_sorted_by_key(|(time, _)| *time));
        for (n, rows) in (0..).zip(&all) {
            let of_it: Vec<_> = found.iter().filter(|(_, number)| number / ROWS == n).copied().collect();
            assert!(of_it == *rows, "rows of input {n} come as they came, each once");
        }
        // What was written piece by piece is read as it was.
        let meta = writer.finish().unwrap();
        assert_eq!((meta.rows, meta.min_ts, meta.max_ts), (4 * ROWS as u64, START, START + (ROWS - 1) / 7 * 3));
        assert_eq!(meta.services, ["text"]);
        let part = open(dir.path(), meta);
        part.verify().await.unwrap();
        let read = part.rows(&ReadStats::default()).await.unwrap();
        assert!(read.iter().flat_map(told).collect::<Vec<_>>() == found);
    }

    /// Breaks if held rows are limited by their number only: a few thousand with long texts are gigabytes.
    #[tokio::test]
    async fn long_rows_are_merged_a_few_at_a_time() {
        const LONG_ROWS: i64 = 300;
        let dir = tempfile::tempdir().unwrap();
        let text = "x".repeat(4000);
        let rows = |n: i64| (0..LONG_ROWS).map(|i| (START + 2 * i + n, n * ROWS + i)).collect::<Vec<_>>();
        let write = |n: i64| write_rows_part(dir.path(), spec(), &batch_of(&text, &rows(n))).unwrap();
        let parts = [0, 1].map(|n| open(dir.path(), write(n)));
        let all = batch_of(&text, &rows(0)).get_array_memory_size();
        let mut merging = RowMerger::open(&RULE_EVALUATIONS, &parts, all as u64 / 16).await.unwrap();
        let mut found = Vec::new();
        while let Some(batch) = merging.next().await.unwrap() {
            let bytes = batch.get_array_memory_size();
            assert!(bytes < all / 4, "{bytes} of {all} bytes at once");
            found.extend(told(&batch));
        }
        let expected = (0..LONG_ROWS).flat_map(|i| [0, 1].map(|n| (START + 2 * i + n, n * ROWS + i)));
        assert!(found.into_iter().eq(expected));
    }
}
