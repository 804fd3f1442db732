//! `absent` and `absent_over_time`: 1 where no row has an element.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use serde::{Deserialize, Serialize};

use super::batch::{matrix_schema, to_batch};
use super::driver::{batches_of, each_block};
use super::operator_encoding::{self, Form};
use super::{Batches, Env, Spread, StepOperator};
use crate::kernel::Block;

/// One row, present at steps where the input is empty.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Absent {
    /// Number of steps of each row.
    pub(crate) steps: usize,
}

impl StepOperator for Absent {
    fn name(&self) -> &'static str {
        "Absent"
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, false)
    }

    fn spread(&self) -> Spread {
        // A step is absent only if no partition has a value at it.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        batches_of(env.clone(), async move {
            let _row = env.reserve("output", self.steps * (size_of::<f64>() + 2))?;
            let mut absent = vec![true; self.steps];
            each_block(input, &env, |block| {
                for (i, present) in block.present.iter().enumerate() {
                    absent[i % self.steps] &= !present;
                }
                block.hists.iter().for_each(|h| absent[h.1 as usize] = false);
            })
            .await?;
            if !absent.contains(&true) {
                return Ok(vec![]);
            }
            let values = vec![1.0; self.steps];
            let block = Block { rows: vec![0], steps: self.steps, values, present: absent, hists: vec![] };
            Ok(vec![to_batch(block, &self.schema())?])
        })
    }
}

impl Form for Absent {
    const KIND: &'static str = "Absent";
}
