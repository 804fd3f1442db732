//! LogsQL: from the text of a query to a DataFusion plan over the logs table.
//!
//! Text → [`ast`] → canonical text or plan. The crate knows the logs table only as a table provider and
//! `quiver_types::logs`; it knows no store and no HTTP.

pub mod ast;
pub mod fuzz;
pub mod kernels;
pub mod rowfn;
pub mod stats_fn;
