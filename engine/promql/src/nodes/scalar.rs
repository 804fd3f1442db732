//! `scalar`: the only float of each step, or NaN.

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

/// One row with a value at each step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToScalar {
    /// Number of steps of each row.
    pub(crate) steps: usize,
}

impl StepOperator for ToScalar {
    fn name(&self) -> &'static str {
        "Scalar"
    }

    fn schema(&self) -> SchemaRef {
        matrix_schema(self.steps, false)
    }

    fn spread(&self) -> Spread {
        // There is a value only if no other partition has one at the step.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        batches_of(env.clone(), async move {
            let _row = env.reserve("scalars", self.steps * (size_of::<u32>() + size_of::<f64>() + 2))?;
            let mut found = vec![0u32; self.steps];
            let mut values = vec![f64::NAN; self.steps];
            each_block(input, &env, |block| {
                for (i, present) in block.present.iter().enumerate() {
                    if *present {
                        let step = i % self.steps;
                        found[step] += 1;
                        values[step] = if found[step] == 1 { block.values[i] } else { f64::NAN };
                    }
                }
            })
            .await?;
            let present = vec![true; self.steps];
            let block = Block { rows: vec![0], steps: self.steps, values, present, hists: vec![] };
            Ok(vec![to_batch(block, &self.schema())?])
        })
    }
}

impl Form for ToScalar {
    const KIND: &'static str = "ToScalar";
}
