//! The answer of a query in columns: tables of labels, blocks of values, and the order in which rows are shown.
//!
//! Here names that operators flagged are dropped at last, and rows that became equal by that are merged.

use std::sync::Arc;

use quiver_query::from_datafusion;
use quiver_types::{Histogram, Millis, Result, SeriesTable};

use crate::kernel::{Block, Grid};
use crate::nodes::batch::matrix_schema;
use crate::nodes::batch::to_block;
use crate::nodes::rows::Merger;
use crate::plan::labels::{drop_names, group, ranks};
use crate::plan::memory::Room;

/// The value of a query: what it is follows from its expression, and whether it has one step or many.
#[derive(Debug, Clone)]
pub enum QueryValue {
    /// A number at a time.
    Scalar {
        /// Time of the evaluation, Unix milliseconds.
        time_ms: Millis,
        /// The number; may be NaN or infinite.
        value: f64,
    },
    /// A text at a time.
    String {
        /// Time of the evaluation, Unix milliseconds.
        time_ms: Millis,
        /// The text, unquoted.
        text: String,
    },
    /// An instant vector: one step; the order of rows is that of the expression.
    Vector(StepResult),
    /// A matrix, sorted by labels.
    Matrix(StepResult),
    /// A range vector of an instant query, sorted by labels.
    Samples(SampleResult),
}

/// Values on a grid.
#[derive(Debug, Clone)]
pub struct StepResult {
    /// Labels of the rows, by row number.
    pub table: Arc<SeriesTable>,
    /// Times of the steps.
    pub grid: Grid,
    /// Values; an answer that is kept shares them.
    pub blocks: Arc<Vec<Block>>,
    /// Rows in the order in which they are shown: row of the table, block, index in the block.
    pub order: Arc<Vec<(u32, u32, u32)>>,
}

/// One row of a result.
#[derive(Debug, Clone, Copy)]
pub struct StepRow<'a> {
    /// Its number in the table of labels.
    pub row: u32,
    /// One value per step.
    pub values: &'a [f64],
    /// Which of `values` are there; others mean nothing.
    pub present: &'a [bool],
    /// Histograms: (index in the block, step, histogram), by step.
    pub hists: &'a [(u32, u32, Histogram)],
}

impl StepResult {
    /// Walks the rows in the order in which they are shown.
    pub fn rows(&self) -> impl Iterator<Item = StepRow<'_>> {
        (0..self.order.len()).filter_map(move |at| self.row(at))
    }

    /// Gives the row at a place in the order in which rows are shown.
    pub fn row(&self, at: usize) -> Option<StepRow<'_>> {
        let &(row, block, idx) = self.order.get(at)?;
        let block = &self.blocks[block as usize];
        let (values, present) = block.row(idx as usize);
        let from = block.hists.partition_point(|h| h.0 < idx);
        let to = block.hists.partition_point(|h| h.0 <= idx);
        Some(StepRow { row, values, present, hists: &block.hists[from..to] })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// About how much memory it takes; texts of labels are shared and counted by their pointers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let labels: usize = self.table.columns().map(|(_, c)| 4 * c.codes.len() + 48 * c.values.len()).sum();
        labels + 12 * self.order.len() + self.blocks.iter().map(Block::memory_bytes).sum::<usize>() + 256
    }

    /// Says whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Samples as they were written.
#[derive(Debug, Clone)]
pub struct SampleResult {
    /// Labels of the series, by row number.
    pub table: Arc<SeriesTable>,
    /// Series in the order in which they are shown.
    pub series: Vec<SampleSeries>,
}

/// Samples of one series.
#[derive(Debug, Clone, Default)]
pub struct SampleSeries {
    /// Its number in the table of labels.
    pub row: u32,
    /// Times of the floats, Unix milliseconds, ascending.
    pub ts: Vec<Millis>,
    /// Floats, one per time of `ts`.
    pub values: Vec<f64>,
    /// Times of the histograms, Unix milliseconds, ascending.
    pub hist_ts: Vec<Millis>,
    /// Histograms, one per time of `hist_ts`.
    pub hists: Vec<Histogram>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// By labels, as matrices are shown.
    Labels,
    /// As they came.
    Arrival,
    /// By row of the table, in an arbitrary but stable order.
    Table,
}

/// The blocks of a plan, before names go and rows are ordered.
#[derive(Debug)]
pub(crate) struct RawResult<'a> {
    pub(crate) blocks: Vec<Block>,
    /// What the rows of the blocks count in.
    pub(crate) table: &'a Arc<SeriesTable>,
    /// Of each row of the table, whether its name goes.
    pub(crate) drop_name: &'a [bool],
    pub(crate) grid: Grid,
    /// Whether the blocks may hold histograms.
    pub(crate) histograms: bool,
}

/// Makes a result of the blocks of a plan.
///
/// # Errors
/// Execution: rows became equal by dropping names and have a value at one step.
pub(crate) fn arrange(room: &Room, raw: RawResult<'_>, order: RowOrder) -> Result<StepResult> {
    let RawResult { mut blocks, table, drop_name, grid, histograms } = raw;
    let mut table = Arc::clone(table);
    if drop_name.contains(&true) {
        let dropped = drop_names(room, &table, drop_name)?;
        let groups = group(room, &dropped, |_| true)?;
        table = Arc::new(if groups.merges() { room.rows_of(&dropped, &groups.first)? } else { dropped });
        if groups.merges() {
            let mut merged = Merger::new(grid.steps);
            for mut block in blocks {
                block.rows.iter_mut().for_each(|r| *r = groups.ids[*r as usize]);
                room.take(block.memory_bytes())?;
                room.did(block.values.len())?;
                merged.add(block).map_err(from_datafusion)?;
            }
            let batches = merged.finish(&matrix_schema(grid.steps, histograms)).map_err(from_datafusion)?;
            blocks =
                batches.into_iter().map(to_block).collect::<datafusion::error::Result<_>>().map_err(from_datafusion)?;
        }
    }
    let rows_count: usize = blocks.iter().map(|block| block.rows.len()).sum();
    room.take(rows_count * size_of::<(u32, u32, u32)>())?;
    room.did(rows_count)?;
    let rows = blocks
        .iter()
        .enumerate()
        .flat_map(|(b, block)| block.rows.iter().enumerate().map(move |(i, &row)| (row, b as u32, i as u32)));
    let mut rows: Vec<(u32, u32, u32)> = rows.collect();
    match order {
        RowOrder::Arrival => {}
        RowOrder::Table => rows.sort_unstable_by_key(|r| r.0),
        RowOrder::Labels => {
            let ranks = ranks(room, &table)?;
            rows.sort_unstable_by_key(|r| ranks[r.0 as usize]);
        }
    }
    Ok(StepResult { table, grid, blocks: Arc::new(blocks), order: Arc::new(rows) })
}

#[cfg(test)]
mod tests {
    use quiver_types::series::SeriesTableBuilder;

    use super::*;
    use crate::plan::labels::show;

    /// Rows of a table with a label `a`, their cells, and which names go.
    fn arranged(rows: &[(&str, &str, [Option<f64>; 2])], drop_name: &[bool], order: RowOrder) -> Result<Vec<String>> {
        let (mut table, mut blocks) = (SeriesTableBuilder::default(), Vec::new());
        for (row, (name, a, cells)) in rows.iter().enumerate() {
            table.push([("__name__", *name), ("a", *a)]);
            let values = cells.iter().map(|cell| cell.unwrap_or(777.0)).collect();
            let present = cells.iter().map(Option::is_some).collect();
            // The last row comes first.
            blocks.insert(0, Block { rows: vec![row as u32], steps: 2, values, present, hists: vec![] });
        }
        let grid = Grid { start: 0, step_ms: 1, steps: 2 };
        let room = Room::unbounded();
        let raw = RawResult { blocks, table: &Arc::new(table.finish()), drop_name, grid, histograms: false };
        let result = arrange(&room, raw, order)?;
        let shown = result.rows().map(|row| {
            let cells =
                row.values.iter().zip(row.present).map(|(v, p)| if *p { v.to_string() } else { "_".to_owned() });
            format!("{} {}", show(result.table.labels(row.row as usize)), cells.collect::<Vec<_>>().join(" "))
        });
        let shown: Vec<String> = shown.collect();
        assert_eq!(
            (shown.len(), result.is_empty(), result.row(shown.len()).is_none()),
            (result.len(), shown.is_empty(), true)
        );
        Ok(shown)
    }

    #[test]
    fn rows_in_the_order_that_is_asked_for() {
        let rows = [("m", "2", [Some(1.0), None]), ("m", "1", [None, Some(2.0)]), ("l", "3", [Some(3.0), Some(4.0)])];
        let [m2, m1, l3] =
            [r#"{__name__="m", a="2"} 1 _"#, r#"{__name__="m", a="1"} _ 2"#, r#"{__name__="l", a="3"} 3 4"#];
        let of = |order| arranged(&rows, &[false; 3], order).expect("rows");
        assert_eq!(of(RowOrder::Arrival), [l3, m1, m2]);
        assert_eq!(of(RowOrder::Table), [m2, m1, l3]);
        assert_eq!(of(RowOrder::Labels), [l3, m1, m2]);
        assert!(arranged(&[], &[], RowOrder::Labels).expect("no rows").is_empty());
    }

    #[test]
    fn names_go_at_last_and_equal_rows_are_merged() {
        let rows = [("m", "1", [Some(1.0), None]), ("n", "1", [None, Some(2.0)]), ("m", "2", [Some(3.0), Some(4.0)])];
        let of = |drop: [bool; 3]| arranged(&rows, &drop, RowOrder::Labels).map_err(|e| e.message);
        assert_eq!(of([true; 3]).expect("rows"), [r#"{a="1"} 1 2"#, r#"{a="2"} 3 4"#]);
        let some = of([true, false, false]).expect("rows");
        assert_eq!(some, [r#"{__name__="m", a="2"} 3 4"#, r#"{__name__="n", a="1"} _ 2"#, r#"{a="1"} 1 _"#]);
        let meet = [("m", "1", [Some(1.0), None]), ("n", "1", [Some(2.0), None])];
        let fault = arranged(&meet, &[true, true], RowOrder::Labels).map_err(|e| (e.kind, e.message)).err();
        let text = "vector cannot contain metrics with the same labelset";
        assert_eq!(fault, Some((quiver_types::ErrorKind::Execution, text.to_owned())));
    }
}
