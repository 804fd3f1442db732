//! Serialized forms of nodes and calls for which DataFusion has no message, or one that loses information.

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The content of DataFusion's message for an extension node. Its children are stored beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Body {
    /// A whole plan, because messages can nest only to a limited depth.
    Plan(Vec<u8>),
    /// A node of one of our crates.
    Of {
        /// The crate that serializes it.
        of: String,
        bytes: Vec<u8>,
    },
    /// A recursive query; its two terms are its children.
    Recursive { name: String, schema: Vec<u8>, is_distinct: bool },
    /// The working table of a recursive query: the rows that its recursive term found last.
    WorkTable { name: String, schema: Vec<u8>, projection: Vec<usize> },
    /// `generate_series` as DataFusion serializes it, which loses orders and scans without columns.
    Series { bytes: Vec<u8>, is_counted: bool, orders: Vec<Vec<SortKey>> },
    /// A union over its inputs as they are: constructing one anew may add casts to them.
    Union { is_interleaved: bool },
    /// A node with a row count beyond the message's 32 bits: the node with a smaller count, and the count.
    Rows { bytes: Vec<u8>, rows: usize },
    /// Window functions; DataFusion's message loses IGNORE NULLS.
    Windows { calls: Vec<Call>, mode: Mode, is_divided: bool },
}

/// How window functions process rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// A whole partition at a time.
    Whole,
    /// Row by row, sorted by all keys.
    Sorted,
    /// Row by row, sorted by some keys.
    PartiallySorted(Vec<usize>),
    /// Row by row, unsorted.
    Linear,
}

/// The call of a window function.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) of: WindowFunctionMessage,
    pub(crate) partition_by: Vec<Vec<u8>>,
    pub(crate) order_by: Vec<SortKey>,
    pub(crate) frame: Vec<u8>,
}

/// The function that is called.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WindowFunctionMessage {
    /// An aggregate over frames that only grow.
    Growing(Vec<u8>),
    /// An aggregate over frames that rows leave again.
    Sliding(Vec<u8>),
    /// A window function that is no aggregate.
    Rows { function: Vec<u8>, name: String, args: Vec<Vec<u8>>, ignores_nulls: bool, is_reversed: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SortKey {
    pub(crate) expr: Vec<u8>,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// Serializes a body.
pub(crate) fn to_bytes(of: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(of).map_err(broken)
}

/// Deserializes a body, which must use all of the bytes.
pub(crate) fn of_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes).map_err(broken)? {
        (read, []) => Ok(read),
        _ => Err(broken("something stands behind it")),
    }
}

/// The error for bytes that cannot be deserialized.
pub(crate) fn broken(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("a written plan is damaged: {error}")
}
