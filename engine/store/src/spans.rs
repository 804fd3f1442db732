//! The scan of spans: one table over the live batches and the parts of a snapshot, with a filter that it evaluates
//! itself.
//!
//! Live batches and parts are units of work, distributed over partitions. A span that was sent repeatedly is returned
//! once. The index of a part tells which rows may match (by trace, by minute); only their pages, and only the columns
//! that filter and output need, are read.

mod attribute_types;
mod duplicates;
pub(crate) mod evaluation;
mod live;
mod planned_scan;
mod rollup;
mod step_size;
mod stream;
mod table;
mod tags;
#[cfg(test)]
mod tests;

pub use attribute_types::attribute_kinds;
pub(crate) use duplicates::Repeats;
pub(crate) use planned_scan::{SpansForm, SpansScan};
pub(crate) use rollup::{LiveRollup, RollupForm, RollupScan};
pub use table::{SpanSnapshots, rollups_table, spans_table, tags_table};
pub(crate) use tags::{TagForm, TagScan};
