//! TraceQL (`traces-api` 5.3): a text becomes a [`Query`], which is answered in two steps.
//!
//! `scan_filter` derives a span filter that every wanted span passes, and the store's scan evaluates it. Then `evaluation` decides
//! exactly, on whole assembled traces.
//!
//! The error for something unsupported names it.

pub(crate) mod ast;
mod compare;
mod completion;
pub(crate) mod error;
mod evaluation;
mod expressions;
pub(crate) mod fields;
mod math;
mod memory;
mod metrics;
mod numbers;
mod parser;
mod part;
mod pipeline;
mod result;
mod result_fields;
mod scan_filter;
mod search;
mod series;
mod step_values;
mod steps;
mod value;

pub use ast::Query;
pub use error::TraceqlError;
pub(crate) use evaluation::attribute;
pub use fields::{INTRINSIC_NAMES, TagName, scope_name};
pub use math::Figures;
pub use part::TracePart;
pub use result::{FoundSet, TraceMatch};
pub use search::{HitSet, HitSpan, TraceqlHit, TraceqlSearch};
pub use series::{MetricExemplar, MetricSeries, MetricWindow};
pub use value::FieldValue;

#[cfg(test)]
mod tests;
