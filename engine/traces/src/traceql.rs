//! TraceQL (`traces-api` 5.3): a text becomes a [`Query`], which is answered in two steps.
//!
//! `lower` derives a span filter that every wanted span passes, and the store's scan evaluates it. Then `eval` decides
//! exactly, on whole assembled traces.
//!
//! The error for something unsupported names it.

pub(crate) mod ast;
mod cells;
mod compare;
mod completion;
pub(crate) mod error;
mod eval;
pub(crate) mod fields;
mod json;
mod lower;
mod math;
mod memory;
mod metrics;
mod numbers;
mod parser;
mod result;
mod result_fields;
mod search;
mod series;
mod stages;
mod terms;

pub use ast::Query;
pub use error::TraceqlError;
pub(crate) use eval::attribute;
pub use fields::{INTRINSIC_NAMES, scope_name};
pub use math::Figures;
pub use result::{Found, FoundSet};
pub use search::{HitSet, HitSpan, TraceqlHit, TraceqlSearch};
pub use series::{MetricExemplar, MetricSeries};

#[cfg(test)]
mod tests;
