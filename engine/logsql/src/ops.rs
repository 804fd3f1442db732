//! What operators do to batches: functions from rows to rows, without plans.

pub(crate) mod aggregate;
pub(crate) mod cells;
pub(crate) mod context;
pub(crate) mod facets;
pub(crate) mod filter;
mod group;
pub(crate) mod join;
pub(crate) mod limit;
pub(crate) mod names;
pub(crate) mod project;
pub(crate) mod row;
pub(crate) mod sort;
pub(crate) mod stream;
pub(crate) mod unpack;
pub(crate) mod unroll;
pub(crate) mod window;
