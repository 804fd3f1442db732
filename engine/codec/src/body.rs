//! Bodies of nodes and calls that DataFusion has no message for, or whose message forgets something.

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What stands in DataFusion's message of a node of others. Children stand beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Body {
    /// A whole plan: messages nest so far, and no further.
    Plan(Vec<u8>),
    /// A node of ours.
    Of {
        /// Whose it is.
        of: String,
        bytes: Vec<u8>,
    },
    /// A recursive query over its two terms.
    Recursive { name: String, schema: Vec<u8>, is_distinct: bool },
    /// The rows that its recursive term found last.
    WorkTable { name: String, schema: Vec<u8>, projection: Vec<usize> },
    /// `generate_series`: as DataFusion writes it, which knows no order and no scan without columns.
    Series { bytes: Vec<u8>, is_counted: bool, orders: Vec<Vec<SortKey>> },
    /// A union over its inputs as they are; whoever makes one anew casts columns of theirs.
    Union { is_interleaved: bool },
    /// A node of more rows than its message counts: the node of few, whole, and how many they are.
    Rows { bytes: Vec<u8>, rows: usize },
    /// Windows; DataFusion's message forgets IGNORE NULLS.
    Windows { calls: Vec<Call>, mode: Mode, is_divided: bool },
}

/// How windows go over their rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// A partition as a whole.
    Whole,
    /// Row by row, in the order of keys.
    Sorted,
    /// Row by row, some keys in order.
    PartiallySorted(Vec<usize>),
    /// Row by row, in no order.
    Linear,
}

/// The call of a window function.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) of: Called,
    pub(crate) partition_by: Vec<Vec<u8>>,
    pub(crate) order_by: Vec<SortKey>,
    pub(crate) frame: Vec<u8>,
}

/// What is called.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Called {
    /// An aggregate, over frames that only grow.
    Growing(Vec<u8>),
    /// An aggregate, over frames that rows leave again.
    Sliding(Vec<u8>),
    /// A function of rows.
    Rows { function: Vec<u8>, name: String, args: Vec<Vec<u8>>, ignores_nulls: bool, is_reversed: bool },
}

/// What rows are ordered by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SortKey {
    pub(crate) expr: Vec<u8>,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// Writes a body.
pub(crate) fn to_bytes(of: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(of).map_err(broken)
}

/// Reads a body: all of the bytes.
pub(crate) fn of_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes).map_err(broken)? {
        (read, []) => Ok(read),
        _ => Err(broken("something stands behind it")),
    }
}

/// Says that bytes are none of a form.
pub(crate) fn broken(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("a written plan is damaged: {error}")
}
