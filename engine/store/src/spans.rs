//! The scan of spans: one table over the live batches and the parts of a snapshot, with a filter that it evaluates
//! itself.
//!
//! Live batches and parts are units of work, distributed over partitions. A span that was sent repeatedly is returned
//! once. The index of a part tells which rows may match (by trace, by minute); only their pages, and only the columns
//! that filter and output need, are read.

pub(crate) mod eval;
mod kinds;
mod live;
mod planned;
mod repeats;
mod rollup;
mod stream;
mod table;
mod tags;
#[cfg(test)]
mod tests;

pub use kinds::attribute_kinds;
pub(crate) use planned::{SpansForm, SpansScan};
pub(crate) use repeats::Repeats;
pub(crate) use rollup::{LiveRollup, RollupForm, RollupScan};
pub use table::{SpanSnapshots, rollups_table, spans_table, tags_table};
pub(crate) use tags::{TagForm, TagScan};
