//! Analytics: measures by dimensions over all telemetry, in the wire format of Cube (`olap-api.md`).
//!
//! | Module | What |
//! |---|---|
//! | `model`, `dates` | the data model · dates and ranges in queries |
//! | `query`, `plan` | a checked query · its plan, made of DataFusion nodes |
//! | `engine`, `explain` | runs queries · explains them |
//! | `response`, `drill_down`, `metadata`, `model_lists`, `member_titles`, `visibility` | responses · drill-down · metadata of models, by what the caller may see |
//! | `rollup` | stored groups of rows, and the queries that are answered from them |
//! | `tables`, `models`, `sql_text`, `functions` | the operator's tables · models as SQL tables · plans as SQL text · functions |
//!
//! Invariants: no HTTP, no store; every answer comes from plans that [`quiver_query::QueryEngine`] runs; nothing above
//! the filter on the caller's rights sees a row that he may not see.

pub mod dates;
pub mod drill_down;
pub mod engine;
pub mod error;
mod explain;
mod functions;
mod member_formats;
mod member_titles;
pub mod metadata;
pub mod model;
pub mod model_lists;
pub mod models;
pub mod plan;
pub mod query;
pub mod response;
mod rollup;
pub mod sql_text;
pub mod tables;
mod visibility;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use engine::{Basis, OlapEngine, ResultCaching};
pub use error::{OlapError, OlapResult, QueryError, Reason};
pub use functions::session_functions;
pub use models::ModelTables;
pub use rollup::{Parts, UsedRollup};
