//! `generate_sequence`: rows that count from 0, in place of others.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_types::logs::MSG;
use serde::{Deserialize, Serialize};

use super::pipe::{At, Order, Pipe, PipeKind};
use super::syntax::above_0;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::{PartialPlan, internal};
use crate::required_fields::Needs;
use crate::rows::{Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `generate_sequence N`: the number of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateSequence(pub u64);

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["generate_sequence"], doc: "Gives rows whose message counts from 0.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<Sequence>()];

/// Rows of a batch.
const ROWS: u64 = 8192;

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    above_0(parser).map(|n| GenerateSequence(n).into())
}

impl Display for GenerateSequence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "generate_sequence {}", self.0)
    }
}

impl PipeKind for GenerateSequence {
    fn before(&self, _: &Needs) -> Needs {
        Needs::default()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn order(&self) -> Order {
        Order::Made
    }

    fn own_rows(&self) -> Option<quiver_types::Result<PartialPlan>> {
        Some(PartialPlan::nothing().then(Sequence(self.0), shape()))
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, _: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        Err(internal("its rows are its own"))
    }
}

fn shape() -> Shape {
    Shape::of_texts([MSG])
}

/// Lacks in DataFusion: a table of numbers whose rows are texts. (`generate_series` needs a catalog.)
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sequence(u64);

impl StepKind for Sequence {
    const KIND: &'static str = "generate_sequence";
}

impl Step for Sequence {
    fn name(&self) -> &'static str {
        "LogsSequence"
    }

    fn detail(&self) -> String {
        self.0.to_string()
    }

    fn schema(&self) -> SchemaRef {
        shape().schema()
    }

    fn open(self: Arc<Self>, _: SendableRecordBatchStream, _: Arc<TaskContext>) -> Result<Batches> {
        let (count, shape) = (self.0, shape());
        let starts = (0..count.div_ceil(ROWS)).map(|i| i * ROWS);
        let batches = futures::stream::iter(starts).map(move |start| {
            let end = count.min(start + ROWS);
            let mut builder = StringViewBuilder::with_capacity((end - start) as usize);
            (start..end).for_each(|n| builder.append_value(n.to_string()));
            batch(&shape, vec![Arc::new(builder.finish()) as ArrayRef], (end - start) as usize)
        });
        let giving_way = batches.then(|batch| async move {
            // Nothing here ever waits, and who ends the query must get a word in.
            tokio::task::yield_now().await;
            batch
        });
        Ok(giving_way.boxed())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[("generate_sequence 5", "generate_sequence 5")]);
        refuses(&[("generate_sequence 0", "a number greater than 0 expected")]);
        gives("generate_sequence 3", &["a=1"], &["_msg=0", "_msg=1", "_msg=2"]);
        gives("generate_sequence 10000 | count() n, max(_msg) m", &[], &["n=10000 m=9999"]);
    }
}
