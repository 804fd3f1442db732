//! What the index of series answers without reading samples (label sets, names, values, metadata, exemplars,
//! cardinality), as tables: a look-up is the leaf of a plan, and everything done with its rows are DataFusion nodes
//! above it (`lists`).

mod lists;
mod look_up;
mod node;
mod notation;
mod rows;

pub use lists::{Counted, cardinality, exemplars, exemplars_of_trace, label_names, label_values, metadata, series};
pub use look_up::{IndexSource, LookUp};
pub(crate) use node::IndexExec;
pub use notation::{json_text, labels_json};

#[cfg(test)]
mod tests;
