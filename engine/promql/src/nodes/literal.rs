//! A matrix that is known when the plan is made: numbers, `time()`, the result of `count_values`, or nothing at all.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use futures::stream;
use serde::{Deserialize, Serialize};

use super::operator_encoding::{self, Form};
use super::{Batches, Env, Spread, StepOperator};

/// Returns fixed batches.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Literal {
    /// Its text in plans.
    pub(crate) shown: String,
    /// Schema of the batches.
    #[serde(with = "quiver_types::encoding::schema")]
    pub(crate) schema: SchemaRef,
    /// Rows that were known when the query was planned.
    #[serde(with = "quiver_types::encoding::batches")]
    pub(crate) batches: Vec<RecordBatch>,
}

impl StepOperator for Literal {
    fn name(&self) -> &'static str {
        "Literal"
    }

    fn detail(&self) -> String {
        self.shown.clone()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn spread(&self) -> Spread {
        // It has no input, and its few batches are made already.
        Spread::Once
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, _: Vec<SendableRecordBatchStream>, _: Env) -> Batches {
        stream::iter(self.batches.clone().into_iter().map(Ok)).boxed()
    }
}

impl Form for Literal {
    const KIND: &'static str = "Literal";
}
