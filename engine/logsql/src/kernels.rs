//! Code over single values, without plans and without columns: recognition and formatting of values, and filters.
//!
//! The parser reads literals with [`values`]; the planner makes [`filters`] and hands them to scans.

pub mod bucket;
pub mod columns;
pub mod filters;
pub mod golang_regex;
pub(crate) mod number_set;
pub mod pattern;
pub mod values;
