//! TraceQL (`traces-api` 5.3): a text becomes a [`Query`], which is answered in two steps.
//!
//! `lower` derives a span filter that every wanted span passes, and the store's scan evaluates it. Then `eval` decides
//! exactly, on whole assembled traces.
//!
//! The error for something unsupported names it.

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
