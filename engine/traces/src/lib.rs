//! Traces: look-up, search, lists and exports over the table of spans (`traces-api`).
//!
//! Every read compiles to a `LogicalPlan` over a `TableScan` of spans and runs on the shared engine; `assemble` makes one
//! trace of what it gives, and everything else reads that. Exports are written by serializers of our own, piece by piece.
//!
//! Invariant: knows no store and no HTTP; what a caller may see is a part of every scan.

pub mod assemble;
mod columns;
pub mod condition;
mod engine;
pub mod export;
pub mod lists;
pub mod params;
mod plan;
mod resource;
mod search;
pub mod stats;
mod summary;
#[cfg(test)]
mod testing;
pub mod traceql;
mod tree;
mod writer;
mod written;

pub use assemble::{Trace, assemble};
pub use engine::{Selection, TraceError, TracesEngine, spans_bytes};
pub use lists::dependencies::{Dependencies, Edge, Node};
pub use lists::{InstanceRow, OperationRow, ServiceRow, TagRow};
pub use params::{ParamError, Params};
pub use plan::Listing;
pub use search::{Page, Search, Sort};
pub use stats::{compare, statistics};
pub use summary::{ServiceCount, Summary, summarize};
pub use tree::Tree;
pub use writer::{Closed, JsonWriter};
pub use written::PlanForms;
