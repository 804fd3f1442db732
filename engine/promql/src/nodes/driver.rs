//! Drives operators: batch by batch through a worker, or on the complete input.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::{Future, StreamExt, TryStreamExt, stream};
use quiver_types::Histogram;
use serde::{Deserialize, Serialize};

use super::batch::to_block;
use super::{Batches, Env};
use crate::kernel::Block;

/// Processes one batch after the other.
pub(crate) trait Worker: Send + 'static {
    /// Takes a batch; returns the batches that are ready.
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>>;

    /// Returns the remaining batches at the end of the input.
    fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        Ok(vec![])
    }

    /// Maximum rows that it takes at a time. Limited if an input row becomes a much larger output row, so that waiting
    /// output does not grow too large.
    fn rows_max(&self) -> usize {
        usize::MAX
    }
}

/// How long a worker runs before it yields: its input may all be available, and the thread is shared by all queries.
const TURN: Duration = Duration::from_millis(5);

/// Drives a worker over an input.
pub(crate) fn drive(input: SendableRecordBatchStream, worker: impl Worker) -> Batches {
    struct State<W> {
        input: Option<SendableRecordBatchStream>,
        worker: W,
        /// Rows of the current batch that the worker has not taken yet.
        rest: Option<RecordBatch>,
        ready: VecDeque<RecordBatch>,
        /// How long it has run since it last yielded.
        worked: Duration,
    }
    let start = State { input: Some(input), worker, rest: None, ready: VecDeque::new(), worked: Duration::ZERO };
    stream::try_unfold(start, |mut s| async move {
        loop {
            if let Some(batch) = s.ready.pop_front() {
                return Ok(Some((batch, s)));
            }
            if let Some(batch) = s.rest.take() {
                let most = s.worker.rows_max().max(1);
                let (now, later) = if batch.num_rows() > most {
                    (batch.slice(0, most), Some(batch.slice(most, batch.num_rows() - most)))
                } else {
                    (batch, None)
                };
                s.rest = later;
                let began = Instant::now();
                s.ready.extend(s.worker.push(now)?);
                s.worked += began.elapsed();
                if s.worked > TURN {
                    s.worked = Duration::ZERO;
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let Some(input) = s.input.as_mut() else { return Ok(None) };
            if let Some(batch) = input.next().await {
                s.rest = Some(batch?);
            } else {
                s.input = None;
                s.ready.extend(s.worker.finish()?);
            }
        }
    })
    .boxed()
}

/// Drives a worker that is created after something else was awaited (scalar inputs, the other side of a join).
pub(crate) fn drive_after<W: Worker>(
    input: SendableRecordBatchStream,
    worker: impl Future<Output = Result<W>> + Send + 'static,
) -> Batches {
    stream::once(async move { worker.await.map(|w| drive(input, w)) }).try_flatten().boxed()
}

/// A stream of the batches that a future returns. They count as memory of the query until they are consumed.
pub(crate) fn batches_of(env: Env, whole: impl Future<Output = Result<Vec<RecordBatch>>> + Send + 'static) -> Batches {
    let held = async move {
        let batches = whole.await?;
        let sizes: Vec<usize> = batches.iter().map(batch_bytes).collect();
        let memory = env.reserve("output", sizes.iter().sum())?;
        Ok::<_, DataFusionError>(stream::iter(batches.into_iter().zip(sizes)).map(move |(batch, size)| {
            memory.shrink(size);
            Ok::<_, DataFusionError>(batch)
        }))
    };
    stream::once(held).try_flatten().boxed()
}

/// Memory of a batch; of shared buffers only its own part.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    let own =
        |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size());
    batch.columns().iter().map(own).sum()
}

/// Collects a complete input. Memory is reserved block by block, and released with the matrix.
pub(crate) async fn collect(mut input: SendableRecordBatchStream, rows: usize, env: &Env) -> Result<Matrix> {
    let memory = env.reserve("matrix", rows * size_of::<Option<(u32, u32)>>())?;
    let mut blocks = Vec::new();
    while let Some(batch) = input.next().await {
        let block = to_block(batch?)?;
        env.run.did(block.values.len())?;
        memory.try_grow(block.memory_bytes())?;
        blocks.push(block);
    }
    Ok(Matrix { _memory: Some(memory), ..Matrix::new(blocks, rows) })
}

/// Calls a function for each block of an input, without holding any.
pub(crate) async fn each_block(
    mut input: SendableRecordBatchStream,
    env: &Env,
    mut f: impl FnMut(&Block),
) -> Result<()> {
    while let Some(batch) = input.next().await {
        let block = to_block(batch?)?;
        env.run.did(block.values.len())?;
        f(&block);
    }
    Ok(())
}

/// Collects a scalar: one value per step.
async fn collect_scalar(input: SendableRecordBatchStream, env: &Env) -> Result<Vec<f64>> {
    let mut found = None;
    each_block(input, env, |b| {
        if found.is_none() && !b.rows.is_empty() {
            found = Some(b.values.clone());
        }
    })
    .await?;
    found.ok_or_else(|| DataFusionError::Internal("a scalar without a value".into()))
}

/// A scalar argument of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Param {
    /// A constant.
    Const(f64),
    /// The value of an input of the node, by number.
    Input(usize),
}

/// The values of parameters: one, or one per step. `inputs` are those after the main one; `first` is the number of the
/// first.
pub(crate) async fn params(
    wanted: &[Param],
    inputs: Vec<SendableRecordBatchStream>,
    first: usize,
    env: &Env,
) -> Result<Vec<Vec<f64>>> {
    let memory = env.reserve("scalars", 0)?;
    let mut given = Vec::with_capacity(inputs.len());
    for input in inputs {
        let values = collect_scalar(input, env).await?;
        memory.try_grow(values.len() * size_of::<f64>())?;
        given.push(values);
    }
    env.run.keep(memory);
    // Each input belongs to one parameter.
    let value = |p: &Param| match p {
        Param::Const(v) => vec![*v],
        Param::Input(i) => std::mem::take(&mut given[*i - first]),
    };
    Ok(wanted.iter().map(value).collect())
}

impl Param {
    /// Its text in plans.
    pub(crate) fn shown(self) -> String {
        match self {
            Self::Const(v) => format!("{v}"),
            Self::Input(i) => format!("input {i}"),
        }
    }
}

/// Histograms of a row by step.
pub(crate) type Hists = Vec<(u32, Histogram)>;

/// Removes the histograms from a block: one list per row, or no lists at all if there are none.
pub(crate) fn split_hists(block: &mut Block) -> Vec<Hists> {
    if block.hists.is_empty() {
        return vec![];
    }
    let mut lists = vec![Hists::new(); block.rows.len()];
    for (idx, step, histogram) in std::mem::take(&mut block.hists) {
        lists[idx as usize].push((step, histogram));
    }
    lists
}

/// Rows of a matrix in memory, by row number.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    blocks: Vec<(Block, Vec<Hists>)>,
    places: Vec<Option<(u32, u32)>>,
    /// Memory reserved for it, if a node holds it.
    _memory: Option<MemoryReservation>,
}

/// One row of a matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowView<'a> {
    /// Values by step.
    pub(crate) values: &'a [f64],
    /// Which of the values are present.
    pub(crate) present: &'a [bool],
    /// Histograms by step.
    pub(crate) hists: &'a [(u32, Histogram)],
}

impl RowView<'_> {
    /// Calls a function for each step that has a float or a histogram.
    pub(crate) fn each_step(&self, mut f: impl FnMut(usize)) {
        for (step, present) in self.present.iter().enumerate() {
            if *present {
                f(step);
            }
        }
        for (step, _) in self.hists {
            f(*step as usize);
        }
    }

    /// Whether there is nothing at any step.
    pub(crate) fn is_empty(&self) -> bool {
        self.hists.is_empty() && !self.present.contains(&true)
    }

    /// The histogram at a step.
    pub(crate) fn histogram(&self, step: usize) -> Option<&Histogram> {
        let i = self.hists.binary_search_by_key(&(step as u32), |h| h.0).ok()?;
        Some(&self.hists[i].1)
    }
}

impl Matrix {
    /// Indexes the blocks of a table with this number of rows.
    pub(crate) fn new(blocks: Vec<Block>, rows: usize) -> Self {
        let mut places = vec![None; rows];
        for (b, block) in blocks.iter().enumerate() {
            for (idx, &row) in block.rows.iter().enumerate() {
                places[row as usize] = Some((b as u32, idx as u32));
            }
        }
        let split = |mut block: Block| {
            let hists = split_hists(&mut block);
            (block, hists)
        };
        Self { blocks: blocks.into_iter().map(split).collect(), places, _memory: None }
    }

    /// A row; `None` if it has no value at any step.
    pub(crate) fn row(&self, row: u32) -> Option<RowView<'_>> {
        let (block, idx) = self.places[row as usize]?;
        let (block, hists) = &self.blocks[block as usize];
        let (values, present) = block.row(idx as usize);
        Some(RowView { values, present, hists: hists.get(idx as usize).map_or(&[], Vec::as_slice) })
    }

    /// Row numbers in order of arrival.
    pub(crate) fn arrival(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(|(b, _)| b.rows.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use arrow::datatypes::Schema;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;

    /// Takes its time for each batch.
    struct Slow;

    impl Worker for Slow {
        fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
            std::thread::sleep(TURN * 2);
            Ok(vec![batch])
        }
    }

    /// On one thread others get their turn after each batch, though the next one is there.
    #[tokio::test]
    async fn long_work_gives_way() {
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::new_empty(Arc::clone(&schema));
        let batches: Vec<Result<RecordBatch>> = (0..4).map(|_| Ok(batch.clone())).collect();
        let input = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches)));
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
            }
        });
        let given: Vec<RecordBatch> = drive(input, Slow).try_collect().await.expect("batches");
        assert_eq!(given.len(), 4);
        assert!(turns.load(SeqCst) >= 4, "{} turns", turns.load(SeqCst));
        other.abort();
    }

    #[test]
    fn rows_of_a_matrix_by_their_numbers() {
        let h = |count: f64| Histogram { count, ..Histogram::default() };
        let block = |rows: &[u32], hists: Vec<(u32, u32, Histogram)>| Block {
            rows: rows.to_vec(),
            steps: 2,
            values: rows.iter().flat_map(|row| [f64::from(*row), 0.5]).collect(),
            present: rows.iter().flat_map(|_| [true, false]).collect(),
            hists,
        };
        let matrix = Matrix::new(vec![block(&[4, 1], vec![(1, 1, h(3.0))]), block(&[0], vec![])], 6);
        assert_eq!(matrix.arrival().collect::<Vec<_>>(), [4, 1, 0]);
        assert!(matrix.row(2).is_none() && matrix.row(5).is_none());
        let row = matrix.row(1).expect("a row");
        assert_eq!((row.values, row.present, row.hists.len()), (&[1.0, 0.5][..], &[true, false][..], 1));
        assert_eq!((row.histogram(0), row.histogram(1).map(|h| h.count)), (None, Some(3.0)));
        let mut steps = Vec::new();
        row.each_step(|step| steps.push(step));
        assert_eq!(steps, [0, 1]);
        assert!(matrix.row(4).is_some_and(|row| row.hists.is_empty() && row.values[0] == 4.0));
        assert!(split_hists(&mut block(&[1, 2], vec![])).is_empty(), "no lists where there is nothing");
    }
}
