//! LogsQL: from the text of a query to a DataFusion plan over the logs table.
//!
//! | Module | What |
//! |---|---|
//! | `lexer`, `literal`, `parser`, `query_text` | text → [`ast`] |
//! | `ast`, `subquery_walk`, `normal_form` | the tree · walks over queries within filters · normal form |
//! | `print`, `reserved_words` | the tree as canonical text · words that must be quoted in it |
//! | `request_params`, `request_scope`, `reference_time` | request parameters · time range, filters and "now" that a request imposes on a query |
//! | `counting` | the queries of endpoints that count rows |
//! | `trace_rows` | the query of rows beside a trace |
//! | `pipes`, `row_functions`, `stats_functions` | the pipes · functions of pipes on single rows · functions of `stats`; one file each |
//! | `plan`, `partial_plan`, `required_fields`, `filter_fields` | the tree → `LogicalPlan` · which fields each part of a query needs |
//! | `nodes`, `step`, `ops`, `rows`, `chunked_stream`, `encoding` | operators, the layout of their batches, their serialized forms |
//! | `kernels` | filters and formats of single values |
//! | `engine` | runs queries on an engine |
//! | `series_columns`, `stats_labels`, `stream_text` | results in the form of Prometheus · labels of streams as text |
//!
//! The crate knows the logs table only as a table provider and through `quiver_types::logs`; it knows no store and no
//! HTTP.

pub mod ast;
mod chunked_stream;
pub mod counting;
mod encoding;
mod engine;
mod error;
mod filter_fields;
pub mod fuzz;
pub mod kernels;
mod lexer;
mod literal;
mod nodes;
mod normal_form;
mod ops;
mod parser;
mod partial_plan;
pub mod pipes;
mod plan;
mod print;
mod query_text;
mod reference_time;
pub mod request_params;
mod request_scope;
mod required_fields;
mod reserved_words;
pub mod row_functions;
mod rows;
mod series_columns;
pub mod stats_functions;
mod stats_labels;
mod step;
mod stream_text;
mod subquery_walk;
pub mod trace_rows;

pub use encoding::PlanForms;
pub use engine::{LogsqlEngine, RowStream, Rows};
pub use error::{QueryPlace, Result};
pub use parser::{QUERY_LEN_MAX, Regexps};
pub use query_text::{parse, parse_among, parse_filter};
pub use request_scope::QueryScope;
pub use series_columns::{StatsColumns, histogram_buckets};
pub use stats_labels::{by_step, in_series, stats_columns};
pub use stream_text::parse as stream_labels;
