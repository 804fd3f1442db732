//! `sort`, `sort_desc`, `sort_by_label…`: the order of an instant vector is the order of rows in the batches.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use serde::{Deserialize, Serialize};

use super::batch::matrix_schema;
use super::driver::{batches_of, collect};
use super::operator_encoding::{self, Form};
use super::rows::to_batches;
use super::{Batches, Env, Spread, StepOperator};
use crate::cancellable_sort::{self, sort_numbers};
use crate::kernel::Block;

/// What determines the order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SortBy {
    /// By value; histograms are dropped.
    Value {
        /// Whether the greatest value comes first.
        descending: bool,
    },
    /// By the rank of each row, known from its labels.
    Rank(Vec<u32>),
}

/// Sorts the rows of an instant vector.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sort {
    pub(crate) by: SortBy,
    /// Whether histograms are possible.
    pub(crate) histograms: bool,
    /// Number of rows of the table.
    pub(crate) rows: usize,
}

impl StepOperator for Sort {
    fn name(&self) -> &'static str {
        "StepSort"
    }

    fn detail(&self) -> String {
        match self.by {
            SortBy::Value { descending } => format!("value descending={descending}"),
            SortBy::Rank(_) => "labels".into(),
        }
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(1, self.histograms)
    }

    fn spread(&self) -> Spread {
        // The order is that of all rows.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        batches_of(env.clone(), async move {
            let matrix = collect(input, self.rows, &env).await?;
            // Memory for the order and its rows.
            let row_bytes = cancellable_sort::BYTES + size_of::<u32>() + size_of::<f64>() + 1;
            let _order = env.reserve("sort", self.rows * row_bytes)?;
            let mut order: Vec<u32> = matrix.arrival().collect();
            let did = |comparisons| env.run.did(comparisons);
            match &self.by {
                SortBy::Value { descending } => {
                    order.retain(|&r| matrix.row(r).is_some_and(|v| v.present[0]));
                    let value = |r: u32| matrix.row(r).map_or(f64::NAN, |v| v.values[0]);
                    sort_numbers(&mut order, did, |a, b| compare_values(value(a), value(b), *descending))?;
                }
                SortBy::Rank(ranks) => {
                    sort_numbers(&mut order, did, |a, b| ranks[a as usize].cmp(&ranks[b as usize]))?;
                }
            }
            let mut block = Block::new(1);
            for row in order {
                let Some(view) = matrix.row(row) else { continue };
                let idx = block.rows.len() as u32;
                block.rows.push(row);
                block.values.push(view.values[0]);
                block.present.push(view.present[0]);
                if !matches!(self.by, SortBy::Value { .. }) {
                    block.hists.extend(view.hists.iter().map(|(step, h)| (idx, *step, h.clone())));
                }
            }
            to_batches(block, &self.schema())
        })
    }
}

impl Form for Sort {
    const KIND: &'static str = "Sort";
}

/// Compares values for `sort` and `sort_desc`; NaN comes last either way.
pub(crate) fn compare_values(a: f64, b: f64, descending: bool) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
    }
}
