//! Analytics: measures by dimensions over all telemetry, in the wire format of Cube (`olap-api.md`).
//!
//! | Module | What |
//! |---|---|
//! | `model`, `dates` | the data model · time as queries speak of it |
//! | `query`, `plan` | a checked query · the plan of DataFusion's nodes that it becomes |
//! | `engine`, `answer`, `meta` | runs a query · what clients read |
//! | `rollup` | groups of rows that are kept, and the queries that they serve |
//! | `tables`, `models` | tables of the operator · models as tables of SQL |
//!
//! Invariants: no HTTP, no store; every answer comes out of plans that [`quiver_query::QueryEngine`] runs; no row that the
//! caller may not see is scanned above its filter.

pub mod answer;
pub mod dates;
pub mod drill;
pub mod engine;
pub mod error;
mod explain;
mod functions;
pub mod listed;
pub mod meta;
pub mod model;
pub mod models;
pub mod plan;
pub mod query;
mod rollup;
pub mod sql_text;
pub mod tables;
mod title;
mod visible;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use engine::{Basis, OlapEngine};
pub use error::{OlapError, OlapResult, QueryError, Reason};
pub use functions::session_functions;
pub use models::ModelTables;
pub use rollup::{Parts, Used};
