//! Traces: look-up, search, lists and exports over the table of spans (`traces-api`).
//!
//! | Module | What |
//! |---|---|
//! | `engine` | runs reads: one snapshot, one context, one or more plans |
//! | `condition`, `traceql` | conditions and TraceQL → filters of spans |
//! | `plan`, `columns`, `encoding` | building plans over spans · columns of a scan · serialized functions |
//! | `search`, `lists` | traces that match · services, operations, tags, service graph |
//! | `assemble`, `span_tree`, `resource`, `summary`, `stats` | spans → one trace · its shape · its services · one row or figures about it |
//! | `export`, `json_writer` | export formats · JSON, written piece by piece |
//!
//! Every read compiles to a `LogicalPlan` over a scan of spans. `assemble` makes one trace of the resulting rows;
//! everything else reads that.
//!
//! Invariant: knows no store, no HTTP and no parameters of requests; what a caller may see is part of every scan.

pub mod assemble;
mod columns;
mod common_values;
pub mod condition;
mod encoding;
mod engine;
pub mod export;
mod json_writer;
pub mod lists;
mod plan;
mod resource;
mod search;
mod span_tree;
pub mod stats;
mod summary;
#[cfg(test)]
mod testing;
pub mod traceql;

pub use assemble::{Trace, assemble};
pub use encoding::PlanForms;
pub use engine::{ParamError, Selection, TraceError, TracesEngine, spans_bytes};
pub use json_writer::{JsonWriter, ReaderClosed};
pub use lists::dependencies::{Dependencies, Edge, Node};
pub use lists::{InstanceRow, OperationRow, ServiceRow, TagRow};
pub use plan::ListOptions;
pub use search::{Cursor, Page, Search, Sort, of_environment, of_instance};
pub use span_tree::Tree;
pub use summary::{MatchedSpan, ServiceCount, Summary, summarize};
