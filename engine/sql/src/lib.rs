//! SQL over all telemetry: a statement becomes one plan over the named tables of `quiver_query::tables`.
//!
//! `parse` reads a statement and says what is not allowed, `scope` finds which column names it speaks of and of which
//! table, `calls` evaluates table functions (PromQL and LogsQL as tables), `catalog` is `information_schema`, `engine` plans
//! and runs. `error` turns what DataFusion says into errors with a place and a suggestion.
//!
//! Invariant: statements only read, and know no store: tables and languages come in through traits.

mod calls;
mod catalog;
mod engine;
mod error;
mod parse;
mod scope;

pub use calls::{CALLS, Call, Languages};
pub use catalog::type_name;
pub use engine::{Answer, Explain, Request, Rows, SqlEngine};
pub use parse::{Param, Params, TEXT_BYTES_MAX};
