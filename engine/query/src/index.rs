//! What the index of series answers without reading samples (label sets, names, values, metadata, exemplars,
//! cardinality), as tables: a look-up is the leaf of a plan, and everything done with its rows are DataFusion nodes
//! above it (`lists`).

mod label_text;
mod lists;
mod lookup;
mod node;
mod rows;

pub use label_text::labels_json;
pub use lists::{
    CardinalityResult, cardinality, exemplars, exemplars_of_trace, label_names, label_values, metadata, series,
};
pub use lookup::{IndexSource, LookUp};
pub(crate) use node::IndexExec;

#[cfg(test)]
mod tests;
