//! `sample`: one of so many rows, by chance.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Output, Pipe, PipeKind};
use super::syntax::above_0;
use crate::chunked_stream::map_batches;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::Shape;
use crate::step::{Batches, Step, StepKind, StepReader};

/// `sample N`: one of so many rows comes through, above 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample(pub u64);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["sample"], doc: "Lets each row through with the chance of one in so many.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<Chance>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    above_0(parser).map(|n| Sample(n).into())
}

impl Display for Sample {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "sample {}", self.0)
    }
}

impl PipeKind for Sample {
    fn before(&self, after: &Needs) -> Needs {
        after.clone()
    }

    fn follows(&self) -> bool {
        true
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        let shape = rows.shape.clone();
        rows.then(Chance { one_in: self.0, seed: at.scope.now_ns as u64, shape: shape.clone() }, shape)
    }
}

/// Lacks in DataFusion: a node for `TABLESAMPLE`, and random numbers that are the same when a plan runs again.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Chance {
    one_in: u64,
    seed: u64,
    shape: Shape,
}

impl StepKind for Chance {
    const KIND: &'static str = "sample";
}

impl Step for Chance {
    fn name(&self) -> &'static str {
        "LogsSample"
    }

    fn detail(&self) -> String {
        format!("one in {}", self.one_in)
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let mut random = SmallRng::seed_from_u64(self.seed);
        let map = move |rows: RecordBatch| {
            let mask: BooleanArray =
                (0..rows.num_rows()).map(|_| Some(random.random_range(0..self.one_in.max(1)) == 0)).collect();
            Ok(filter_record_batch(&rows, &mask)?)
        };
        Ok(map_batches(rows, &task, Box::new(map)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("sample 3", "sample 3")]);
        refuses(&[("sample 0", "a number greater than 0 expected"), ("sample", "a number greater than 0")]);
        gives("sample 1", &["a=1", "a=2"], &["a=1", "a=2"]);
        gives("sample 1000000000000 | count() n", &["a=1", "a=2"], &["n=0"]);
    }
}
