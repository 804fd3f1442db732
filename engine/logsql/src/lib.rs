//! LogsQL: from the text of a query to a DataFusion plan over the logs table.
//!
//! | Module | What |
//! |---|---|
//! | `lexer`, `literal`, `parser`, `read` | text → [`ast`] |
//! | `ast`, `visit`, `normal` | the tree · walks over queries within filters · normal form |
//! | `print`, `reserved` | the tree as canonical text · words that must be quoted in it |
//! | `request`, `scope`, `time_scope` | request parameters · time range, filters and "now" that a request imposes on a query |
//! | `pipes`, `rowfn`, `stats_fn` | the pipes · functions of pipes on single rows · functions of `stats`; one file each |
//! | `plan`, `partial_plan`, `needs`, `filter_needs` | the tree → `LogicalPlan` · which fields each part of a query needs |
//! | `nodes`, `step`, `ops`, `rows`, `pieces`, `encoding` | operators, the layout of their batches, their serialized forms |
//! | `kernels` | filters and formats of single values |
//! | `run` | runs queries on an engine |
//! | `series_columns`, `stats_labels`, `stream_text` | results in the form of Prometheus · labels of streams as text |
//!
//! The crate knows the logs table only as a table provider and through `quiver_types::logs`; it knows no store and no
//! HTTP.

pub mod ast;
mod encoding;
mod error;
mod filter_needs;
pub mod fuzz;
pub mod kernels;
mod lexer;
mod literal;
mod needs;
mod nodes;
mod normal;
mod ops;
mod parser;
mod partial_plan;
mod pieces;
pub mod pipes;
mod plan;
mod print;
mod read;
pub mod request;
mod reserved;
pub mod rowfn;
mod rows;
mod run;
mod scope;
mod series_columns;
pub mod stats_fn;
mod stats_labels;
mod step;
mod stream_text;
mod time_scope;
mod visit;

pub use encoding::PlanForms;
pub use error::Result;
pub use parser::{QUERY_LEN_MAX, Regexps};
pub use read::{parse, parse_among, parse_filter};
pub use run::{LogsqlEngine, RowStream, Rows};
pub use scope::QueryScope;
pub use series_columns::{StatsColumns, histogram_buckets};
pub use stats_labels::{by_step, in_series, stats_columns};
pub use stream_text::parse as stream_labels;
