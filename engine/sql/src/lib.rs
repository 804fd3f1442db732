//! SQL over all telemetry: a statement becomes one plan over the tables of `quiver_query::tables`.
//!
//! | Module | What |
//! |---|---|
//! | `parse`, `syntax_rewrites` | text → statement; only queries are allowed · PostgreSQL syntax that the parser does not know |
//! | `nesting`, `operator_chains`, `select_limits` | limits on nested subqueries, chains of operators, windows and outputs |
//! | `plain_calls`, `member_functions` | what functions of one row do not take · functions that return members of objects |
//! | `names`, `column_references` | names in a statement · which columns it refers to, and of which table |
//! | `table_functions`, `map_columns` | table functions: PromQL and LogsQL as tables · their labels and fields as columns |
//! | `catalog` | `information_schema` and `pg_catalog` |
//! | `dialect` | rewrites PostgreSQL's dialect to what DataFusion's planner knows |
//! | `session`, `settings` | what a statement may ask about its connection, and set on it |
//! | `models` | models of analytics as tables |
//! | `plan_checks`, `missing_rights` | checks of the plan before it is optimized · missing rights |
//! | `engine`, `error` | plans and runs statements · errors of DataFusion with a place in the text and a suggestion |
//!
//! Invariant: statements only read; the crate knows no store: tables and languages come in through traits.

mod catalog;
mod column_references;
mod dialect;
mod engine;
mod error;
mod map_columns;
mod member_functions;
mod missing_rights;
mod models;
mod names;
mod nesting;
mod operator_chains;
mod parse;
mod plain_calls;
mod plan_checks;
mod select_limits;
mod session;
mod settings;
mod statement_walk;
mod syntax_rewrites;
mod table_functions;
#[cfg(test)]
mod testing;

pub use catalog::type_name;
pub use catalog::types::{PG_TYPES, PgType, field_oid, pg_type, type_named, type_oid};
pub use engine::{Request, SqlEngine, StatementDescription, output_name, plan_columns};
pub use error::{Fault, place_of};
pub use parse::{Param, Params, TEXT_BYTES_MAX, plain_literals};
pub use quiver_query::rows::{Answer, Rows};
pub use session::{DATABASE, SERVER_VERSION, Session};
pub use settings::{SettingChange, settings};
pub use table_functions::{CALLS, Call, CallRows, Languages};
