//! Aggregation: rows of a block folded into groups, and the operators that select rows.
//!
//! - [`Accumulator`]: `sum avg count min max group stddev stdvar quantile`, state `groups × steps`, folded row by row
//!   with dense loops and merged across partitions, between which it travels as [`Parts`];
//! - [`RowSelector`]: `topk bottomk limitk`, which keep rows per step;
//! - [`ratio_keeps`]: `limit_ratio`, decided by a row's hash alone;
//! - [`CountValues`]: `count_values`, whose label comes from the values;
//! - [`check_params`]: faults and warnings about the parameter of an operator.
//!
//! Semantics: Prometheus 3.14 `promql/engine.go`: `aggregation`, `aggregationK`, `aggregationCountValues`.

mod accumulator;
mod count_values;
mod histograms;
mod params;
mod selector;

pub use accumulator::{Accumulator, Parts, SeriesRow};
pub use count_values::{CountValues, CountedValue, value_label};
pub use histograms::HistogramPart;
pub use params::check_params;
pub use selector::{RowSelector, Selection, ratio_keeps};
