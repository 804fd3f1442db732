//! Renumbers rows after their labels were changed; rows whose labels have become equal are merged.

use std::sync::Arc;

use arrow::array::{AsArray, UInt32Array};
use arrow::datatypes::{SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::batch::{BlockBuilder, matrix_schema, rows_per_batch, to_batch, to_block};
use super::driver::batches_of;
use super::operator_encoding::{self, Form};
use super::{Batches, Env, Spread, StepOperator, failed};
use crate::kernel::Block;

/// Prometheus' error message if two rows of a vector have the same labels at a step.
pub(crate) const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// Replaces each row number by `to[row]`. Rows that get the same number must not both have a value at a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MapRows {
    /// Number of steps of each row.
    pub(crate) steps: usize,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
    /// New number of each row.
    pub(crate) to: Arc<Vec<u32>>,
    /// Whether two rows may get the same number.
    pub(crate) merges: bool,
    /// What changed the labels, for plans.
    pub(crate) shown: String,
}

impl StepOperator for MapRows {
    fn name(&self) -> &'static str {
        "MapLabels"
    }

    fn detail(&self) -> String {
        self.shown.clone()
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, self.histograms)
    }

    fn spread(&self) -> Spread {
        // Rows that become one may be in different partitions.
        if self.merges { Spread::Once } else { Spread::Each }
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let mut input = inputs.swap_remove(0);
        if !self.merges {
            return input.map(move |batch| renumber(&batch?, &self.to)).boxed();
        }
        batches_of(env.clone(), async move {
            let mut merged = Merger::new(self.steps).within(&env)?;
            while let Some(batch) = input.next().await {
                let mut block = to_block(batch?)?;
                env.run.did(block.values.len())?;
                block.rows.iter_mut().for_each(|r| *r = self.to[*r as usize]);
                merged.add(block)?;
            }
            merged.finish(&self.schema())
        })
    }
}

impl Form for MapRows {
    const KIND: &'static str = "MapRows";
}

/// Renumbers the rows of a batch.
pub(crate) fn renumber(batch: &RecordBatch, to: &[u32]) -> Result<RecordBatch> {
    let rows = batch.column(0).as_primitive::<UInt32Type>().values();
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(UInt32Array::from_iter_values(rows.iter().map(|&r| to[r as usize])));
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

/// Merges rows with the same number.
#[derive(Debug)]
pub(crate) struct Merger {
    steps: usize,
    /// Index in `block` of each row number.
    places: hashbrown::HashMap<u32, usize, foldhash::fast::RandomState>,
    block: Block,
    memory: Option<MemoryReservation>,
}

impl Merger {
    /// Makes an empty merger for rows of this many steps.
    pub(crate) fn new(steps: usize) -> Self {
        Self { steps, places: hashbrown::HashMap::default(), block: Block::new(steps), memory: None }
    }

    /// Accounts its memory to the query.
    ///
    /// # Errors
    /// The memory pool is exhausted.
    pub(crate) fn within(mut self, env: &Env) -> Result<Self> {
        self.memory = Some(env.reserve("merged rows", 0)?);
        Ok(self)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Execution: two rows with the same number have a value at the same step.
    pub(crate) fn add(&mut self, block: Block) -> Result<()> {
        let steps = self.steps;
        if let Some(memory) = &self.memory {
            // Merged rows stay accounted until the end: at most twice the memory in use.
            memory.try_grow(block.memory_bytes())?;
        }
        let mut placed = Vec::with_capacity(block.rows.len());
        for (idx, &row) in block.rows.iter().enumerate() {
            let next = self.block.rows.len();
            let place = *self.places.entry(row).or_insert(next);
            placed.push(place as u32);
            let (values, present) = block.row(idx);
            if place == next {
                self.block.rows.push(row);
                self.block.values.extend_from_slice(values);
                self.block.present.extend_from_slice(present);
                continue;
            }
            for step in 0..steps {
                if present[step] {
                    let at = place * steps + step;
                    if std::mem::replace(&mut self.block.present[at], true) {
                        return Err(failed(SAME_LABELSET));
                    }
                    self.block.values[at] = values[step];
                }
            }
        }
        self.block.hists.extend(block.hists.into_iter().map(|(idx, step, h)| (placed[idx as usize], step, h)));
        Ok(())
    }

    /// The rows in the order in which their numbers first appeared.
    ///
    /// # Errors
    /// Execution: two rows with the same number have a histogram, or a histogram and a float, at the same step.
    pub(crate) fn finish(mut self, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
        self.block.hists.sort_by_key(|h| (h.0, h.1));
        let twice = self.block.hists.windows(2).any(|w| (w[0].0, w[0].1) == (w[1].0, w[1].1));
        let steps = self.steps;
        let both = |h: &(u32, u32, quiver_types::Histogram)| self.block.present[h.0 as usize * steps + h.1 as usize];
        if twice || self.block.hists.iter().any(both) {
            return Err(failed(SAME_LABELSET));
        }
        to_batches(self.block, schema)
    }
}

/// Splits a block into batches of a suitable size.
pub(crate) fn to_batches(block: Block, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    let mut block = block;
    let whole = block.steps > 0 && block.rows.len() <= rows_per_batch(block.steps);
    if whole && block.hists.is_empty() && block.present.chunks(block.steps).all(|row| row.contains(&true)) {
        return if block.rows.is_empty() { Ok(vec![]) } else { to_batch(block, schema).map(|b| vec![b]) };
    }
    let mut out = BlockBuilder::new(block.steps, Arc::clone(schema));
    let mut batches = Vec::new();
    let mut hists = std::mem::take(&mut block.hists).into_iter().peekable();
    for (idx, &row) in block.rows.iter().enumerate() {
        let (from, from_present) = block.row(idx);
        let (values, present) = out.row(row);
        values.copy_from_slice(from);
        present.copy_from_slice(from_present);
        while let Some((_, step, histogram)) = hists.next_if(|h| h.0 as usize == idx) {
            out.histograms([(step, histogram)]);
        }
        out.end_row();
        batches.extend(out.full()?);
    }
    batches.extend(out.flush()?);
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_unless_both_have_a_value() {
        let block = |row, present: [bool; 2]| Block {
            rows: vec![row],
            steps: 2,
            values: vec![1.0, 2.0],
            present: present.to_vec(),
            hists: vec![],
        };
        let mut m = Merger::new(2);
        m.add(block(7, [true, false])).unwrap();
        m.add(block(7, [false, true])).unwrap();
        m.add(block(8, [true, true])).unwrap();
        assert!(m.add(block(8, [true, false])).is_err());
        let batches = m.finish(&matrix_schema(2, false)).unwrap();
        assert_eq!(batches[0].num_rows(), 2);
    }
}
