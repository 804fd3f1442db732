//! TraceQL (`traces-api` 5.3): a text becomes a [`Query`], which is answered in two steps.
//!
//! `lower` gives a filter of spans that none of the wanted spans fails, which the store's scan evaluates; `eval` then
//! decides over whole traces, as assembled. So every expression is exact, and what the scan can tell is left to it.
//!
//! What is not supported is named in the error.

pub(crate) mod ast;
mod cells;
mod compare;
pub(crate) mod error;
mod eval;
pub(crate) mod fields;
mod found;
mod json;
mod lower;
mod math;
mod memory;
mod metrics;
mod numbers;
mod parser;
mod search;
mod series;
mod shown;
mod stages;
mod terms;
mod unfinished;

pub use ast::Query;
pub use error::TraceqlError;
pub(crate) use eval::attribute;
pub use fields::{INTRINSIC_NAMES, scope_name};
pub use found::{Found, FoundSet};
pub use math::Figures;
pub use search::{HitSet, HitSpan, TraceqlHit, TraceqlSearch};
pub use series::{MetricExemplar, MetricSeries};

#[cfg(test)]
mod tests;
