//! A step transforms rows to rows. Here: how a step is serialized and read back.
//!
//! Serialization is derived from the type of the step. A step holds no state of a run, so none is written.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::stream::BoxStream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The batches of one partition of a step.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch>>;

/// A step from rows to rows: plain data that says what is done. Whatever it needs while it runs (compiled expressions,
/// buffers, reserved memory) is made when a partition is opened, and belongs to that run alone.
pub(crate) trait Step: WrittenStep + Debug + Send + Sync + 'static {
    /// Name that plans show.
    fn name(&self) -> &'static str;

    /// What plans show beside the name.
    fn detail(&self) -> String {
        String::new()
    }

    /// Schema of the batches that it gives.
    fn schema(&self) -> SchemaRef;

    /// Whether it has to see all partitions as one.
    fn once(&self) -> bool {
        false
    }

    /// Begins the work on a partition.
    ///
    /// # Errors
    /// What it says cannot be done.
    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches>;
}

/// A type of steps.
pub(crate) trait StepKind: Serialize + DeserializeOwned {
    /// Tells it from all others in a plan that is written; never used again for another.
    const KIND: &'static str;
}

/// What a step gives of itself when its plan is written.
pub(crate) trait WrittenStep {
    /// The kind, by which its reader is found.
    fn kind(&self) -> &'static str;

    /// The step as bytes.
    ///
    /// # Errors
    /// Internal: a matcher of a filter in it has no written form.
    fn body(&self) -> Result<Vec<u8>>;
}

impl<S: StepKind> WrittenStep for S {
    fn kind(&self) -> &'static str {
        S::KIND
    }

    fn body(&self) -> Result<Vec<u8>> {
        to_bytes(self)
    }
}

/// How the steps of a kind are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepReader {
    pub(crate) kind: &'static str,
    pub(crate) read: fn(&[u8]) -> Result<Arc<dyn Step>>,
}

impl StepReader {
    /// The reader of a type of steps.
    pub(crate) const fn of<S: Step + StepKind>() -> Self {
        Self { kind: S::KIND, read: read_step::<S> }
    }
}

fn read_step<S: Step + StepKind>(body: &[u8]) -> Result<Arc<dyn Step>> {
    Ok(Arc::new(from_bytes::<S>(body)?))
}

/// Writes plain data.
pub(crate) fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|e| DataFusionError::External(Box::new(e)))
}

/// Reads what [`to_bytes`] wrote.
///
/// # Errors
/// Bytes that are no such data, or more of them.
pub(crate) fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|e| DataFusionError::External(Box::new(e)))?;
    if rest.is_empty() { Ok(value) } else { internal_err!("{} bytes are left of a written form", rest.len()) }
}
