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

/// A step from rows to rows, described by plain data. What it needs while it runs (compiled expressions, buffers,
/// reserved memory) is created when a partition is opened, and belongs to that run only.
pub(crate) trait Step: WrittenStep + Debug + Send + Sync + 'static {
    /// Name that plans show.
    fn name(&self) -> &'static str;

    /// What `explain` shows after the name.
    fn detail(&self) -> String {
        String::new()
    }

    /// Schema of its output.
    fn schema(&self) -> SchemaRef;

    /// Says whether it needs the rows of all partitions, merged, so that it runs once.
    fn needs_all_rows(&self) -> bool {
        false
    }

    /// Begins the work on a partition.
    ///
    /// # Errors
    /// The step cannot be carried out.
    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches>;
}

/// A type of steps.
pub(crate) trait StepKind: Serialize + DeserializeOwned {
    /// Identifies the type in serialized plans; never reused for another type.
    const KIND: &'static str;
}

/// Serialization of a step.
pub(crate) trait WrittenStep {
    /// The kind of the step, by which its reader is found.
    fn kind(&self) -> &'static str;

    /// Serializes the step.
    ///
    /// # Errors
    /// Internal: a matcher in one of its filters cannot be serialized.
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

/// Deserializes steps of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepReader {
    pub(crate) kind: &'static str,
    pub(crate) read: fn(&[u8]) -> Result<Arc<dyn Step>>,
}

impl StepReader {
    /// Makes the reader of a type of steps.
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
