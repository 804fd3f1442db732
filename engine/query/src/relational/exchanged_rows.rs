//! Limits the memory of exchanges. DataFusion's exchange counts the batches that wait in it, but not those that it is
//! still building: one of 8,192 rows per output, however large the rows. With groups of 100 KB each, 1,024 rows made
//! 100 MB, and a batch of groups is copied as a whole while it is distributed.
//!
//! A node below the exchange merges short batches and cuts long ones, by bytes. The exchange then only distributes
//! them: it merges nothing if its input is unbounded, and so the node claims to be. Once a plan is made, that claim is
//! used for nothing else.
//!
//! A batch that is distributed over many outputs has few rows for each of them, and those are still merged by the
//! exchange.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::compute::BatchCoalescer;
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::Boundedness;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt as _, stream};

use super::batch_bytes::{batch_bytes, may_be_long};
use crate::error::from_datafusion;
use crate::functions::bytes_of;
use crate::held_rows::HeldRows;
use crate::node_defaults::{no_expressions, one_input};
use crate::plan_walk::change_physical;

/// Outputs of an exchange up to which each has enough of a batch. The buffers behind views count with each output's part.
const OUTPUTS_MAX: usize = 4;

/// Puts the node below exchanges of rows that may be long.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn below_exchanges(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let Some(exchange) = node.downcast_ref::<RepartitionExec>() else { return Ok(Transformed::no(node)) };
        if exchange.preserve_order() {
            return Ok(Transformed::no(node));
        }
        let outputs = exchange.partitioning().partition_count();
        let Some(input) = below(exchange.input(), outputs) else { return Ok(Transformed::no(node)) };
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(vec![input], anew)?))
    })
}

/// Puts the node over what an exchange of another crate spreads over so many outputs.
pub fn exchanged(input: Arc<dyn ExecutionPlan>, outputs: usize) -> Arc<dyn ExecutionPlan> {
    below(&input, outputs).unwrap_or(input)
}

/// The node over an input; `None`: it needs none.
fn below(input: &Arc<dyn ExecutionPlan>, outputs: usize) -> Option<Arc<dyn ExecutionPlan>> {
    let is_one = outputs <= OUTPUTS_MAX && may_be_long(&input.schema()) && !input.is::<ExchangedRowsExec>();
    is_one.then(|| Arc::new(ExchangedRowsExec::new(Arc::clone(input))) as Arc<dyn ExecutionPlan>)
}

/// Makes batches of about the same bytes, for an exchange that spreads each as it comes.
#[derive(Debug)]
pub(crate) struct ExchangedRowsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ExchangedRowsExec {
    /// Makes the node over what an exchange spreads.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let endless = Boundedness::Unbounded { requires_infinite_memory: false };
        let properties = input.properties().as_ref().clone().with_boundedness(endless);
        Self { input, properties: Arc::new(properties) }
    }

    #[expect(clippy::unused_self, reason = "`one_input!` makes each node over another input from what it is")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input)
    }
}

impl DisplayAs for ExchangedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExchangedRowsExec")
    }
}

impl ExecutionPlan for ExchangedRowsExec {
    fn name(&self) -> &'static str {
        "ExchangedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    one_input!();
    no_expressions!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let bytes = batch_bytes(context.memory_pool().as_ref()) / OUTPUTS_MAX;
        let rows = context.session_config().batch_size();
        let merged = BatchCoalescer::new(self.schema(), rows).with_biggest_coalesce_batch_size(Some(rows / 2));
        let input = self.input.execute(partition, context)?;
        let evened = Evened { input: Some(input), bytes, pieces: VecDeque::new(), merged, merged_bytes: 0 };
        let batches = stream::try_unfold(evened, async |mut evened| {
            let batch = evened.next().await?;
            Ok(batch.map(|batch| (batch, evened)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// Batches that are put together and cut.
struct Evened {
    /// None when all was read.
    input: Option<SendableRecordBatchStream>,
    /// Bytes that a batch of several rows has at most.
    bytes: usize,
    /// What was cut out of the last batch, and its bytes. Each is copied when its turn comes.
    pieces: VecDeque<(RecordBatch, usize)>,
    merged: BatchCoalescer,
    /// Bytes in what is being put together.
    merged_bytes: usize,
}

impl Evened {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.merged.next_completed_batch() {
                return Ok(Some(batch));
            }
            if let Some((piece, bytes)) = self.pieces.pop_front() {
                self.add(piece, bytes)?;
                continue;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            if let Some(batch) = input.next().await {
                cut(batch?, self.bytes, &mut self.pieces)?;
            } else {
                self.input = None;
                self.merged.finish_buffered_batch()?;
            }
        }
    }

    fn add(&mut self, piece: RecordBatch, bytes: usize) -> Result<()> {
        if self.merged_bytes + bytes > self.bytes {
            self.merged.finish_buffered_batch()?;
            self.merged_bytes = 0;
        }
        // The exchange counts all of the buffers that a batch keeps.
        self.merged.push_batch(HeldRows::default().held(piece))?;
        if self.merged.has_completed_batch() {
            self.merged_bytes = 0;
        }
        if self.merged.get_buffered_rows() > 0 {
            self.merged_bytes += bytes;
        }
        Ok(())
    }
}

/// Cuts a batch in halves until each has no more than so many bytes, or one row.
fn cut(batch: RecordBatch, most: usize, pieces: &mut VecDeque<(RecordBatch, usize)>) -> Result<()> {
    // What is cut is on top of what is to be cut behind it.
    let bytes = values_of(&batch)?;
    let mut uncut = vec![(batch, bytes)];
    while let Some((batch, bytes)) = uncut.pop() {
        let rows = batch.num_rows();
        if bytes <= most || rows < 2 {
            pieces.push_back((batch, bytes));
            continue;
        }
        let (first, last) = (batch.slice(0, rows / 2), batch.slice(rows / 2, rows - rows / 2));
        let (of_first, of_last) = (values_of(&first)?, values_of(&last)?);
        // The values of a dictionary are in both halves.
        if (of_first + of_last) / 3 > bytes / 2 {
            pieces.push_back((batch, bytes));
            continue;
        }
        uncut.extend([(last, of_last), (first, of_first)]);
    }
    Ok(())
}

/// Cuts a batch into ones of no more than so many bytes of values each, or of one row. Nothing is copied.
///
/// # Errors
/// Internal: columns of a kind whose bytes are not known.
pub fn cut_by_bytes(batch: &RecordBatch, most: usize) -> quiver_types::Result<Vec<RecordBatch>> {
    let mut pieces = VecDeque::new();
    cut(batch.clone(), most, &mut pieces).map_err(from_datafusion)?;
    Ok(pieces.into_iter().map(|(piece, _)| piece).collect())
}

/// Bytes of the values of a batch.
fn values_of(batch: &RecordBatch) -> Result<usize> {
    let bytes = batch.columns().iter().map(|column| bytes_of(column.as_ref()));
    Ok(bytes.sum::<Result<i128>>()?.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, ArrayRef, AsArray as _, DictionaryArray, Int32Array, StringArray, StringViewArray};
    use arrow::datatypes::{Field, Int32Type, Schema};
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::{Partitioning, displayable};

    use super::*;
    use crate::node_encoding::tests::passed;

    fn batch(column: ArrayRef) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("a", column.data_type().clone(), true)]);
        RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
    }

    fn texts(rows: usize, bytes: usize) -> RecordBatch {
        batch(Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("{row:0bytes$}")))))
    }

    /// What becomes of batches: each with at most so many bytes, or 1,024 rows.
    fn evened(batches: Vec<RecordBatch>, bytes: usize) -> Vec<RecordBatch> {
        let schema = batches[0].schema();
        let merged = BatchCoalescer::new(Arc::clone(&schema), 1024).with_biggest_coalesce_batch_size(Some(512));
        let rows = stream::iter(batches.into_iter().map(Ok));
        let input: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        let mut evened = Evened { input: Some(input), bytes, pieces: VecDeque::new(), merged, merged_bytes: 0 };
        let mut out = Vec::new();
        while let Some(batch) = futures::executor::block_on(evened.next()).unwrap() {
            out.push(batch);
        }
        out
    }

    fn all_texts(batches: &[RecordBatch]) -> Vec<String> {
        let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten());
        texts.map(str::to_owned).collect()
    }

    /// Breaks if batches are limited by their rows only: these rows made one batch of 100 MB.
    #[test]
    fn long_rows_stay_apart() {
        let few = vec![texts(10, 10_000); 100];
        let out = evened(few.clone(), 1 << 20);
        assert_eq!(all_texts(&out), all_texts(&few));
        let most = out.iter().map(RecordBatch::get_array_memory_size).max().unwrap();
        assert!((500_000..1_200_000).contains(&most), "{most} bytes, {} batches", out.len());
    }

    #[test]
    fn a_long_batch_is_cut_into_ones_of_their_own() {
        let whole = texts(1000, 10_000);
        let out = evened(vec![whole.clone()], 1 << 20);
        assert_eq!(all_texts(&out), all_texts(&[whole]));
        let most = out.iter().map(RecordBatch::get_array_memory_size).max().unwrap();
        assert!(out.len() >= 10 && most < 1_200_000, "{most} bytes, {} batches", out.len());
        // However long it is, it is a row.
        assert_eq!(evened(vec![texts(3, 10_000)], 100).len(), 3);
    }

    #[test]
    fn views_do_not_keep_what_others_show() {
        let shown = StringViewArray::from_iter_values((0..2000).map(|row| format!("{row:01000}")));
        let whole = batch(Arc::new(shown));
        let parts: Vec<RecordBatch> = (0..20).map(|part| whole.slice(part * 100, 100)).collect();
        let out = evened(parts, 1 << 20);
        assert_eq!(out.iter().map(RecordBatch::num_rows).sum::<usize>(), 2000);
        let most = out.iter().map(RecordBatch::get_array_memory_size).max().unwrap();
        assert!(most < 2_000_000, "{most} bytes");
    }

    #[test]
    fn short_rows_are_put_together_by_number() {
        let short = vec![texts(100, 8); 50];
        let out = evened(short.clone(), 1 << 20);
        assert_eq!(all_texts(&out), all_texts(&short));
        let rows: Vec<usize> = out.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [1024, 1024, 1024, 1024, 904]);
        let enough = evened(vec![texts(2000, 8), texts(0, 8), texts(600, 8)], 1 << 20);
        assert_eq!(enough.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2000, 600]);
    }

    #[test]
    fn cutting_ends_where_halves_share_what_is_long() {
        let values = StringArray::from_iter_values(["x".repeat(1000), "y".repeat(1000)]);
        let keys = Int32Array::from_iter_values((0..100).map(|row| row % 2));
        let coded = DictionaryArray::<Int32Type>::try_new(keys, Arc::new(values)).unwrap();
        let mut pieces = VecDeque::new();
        cut(batch(Arc::new(coded)), 500, &mut pieces).unwrap();
        assert!(pieces.len() <= 2, "{}", pieces.len());
        assert_eq!(pieces.iter().map(|(piece, _)| piece.num_rows()).sum::<usize>(), 100);
    }

    #[test]
    fn it_stands_below_exchanges_of_rows_that_may_be_long() {
        let shown = |column: ArrayRef, outputs: usize| {
            let rows: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(batch(column).schema()));
            let by = Partitioning::Hash(vec![Arc::new(Column::new("a", 0))], outputs);
            let plan = below_exchanges(Arc::new(RepartitionExec::try_new(rows, by).unwrap())).unwrap();
            let (again, _) = passed(below_exchanges(plan).unwrap());
            let text = displayable(again.as_ref()).indent(false).to_string();
            text.lines().map(|line| line.trim().split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        let text = || Arc::new(StringArray::from_iter_values(["x"])) as ArrayRef;
        assert_eq!(shown(text(), 2), ["RepartitionExec", "ExchangedRowsExec", "EmptyExec"]);
        assert_eq!(shown(text(), 5), ["RepartitionExec", "EmptyExec"]);
        assert_eq!(shown(Arc::new(Int32Array::from_iter_values([1])), 2), ["RepartitionExec", "EmptyExec"]);
    }
}
