//! What the index of series answers by itself (label sets, names, values, metadata, exemplars, cardinality) as tables of
//! plans: a look-up is the leaf, all that is done with its rows stands above it in DataFusion's nodes (`lists`).

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
