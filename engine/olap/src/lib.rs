//! Analytics: measures by dimensions over all telemetry, in the wire format of Cube (`olap-api.md`).
//!
//! `model` is the data model, `dates` time as queries speak of it, `query` a checked query.

pub mod dates;
pub mod error;
mod functions;
pub mod model;
pub mod plan;
pub mod query;
mod title;

pub use error::{OlapError, OlapResult, QueryError, Reason};
