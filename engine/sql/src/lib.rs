//! SQL over all telemetry: a statement becomes one plan over the named tables of `quiver_query::tables`.
//!
//! | Module | What |
//! |---|---|
//! | `parse`, `wording` | text → statement, and what is not allowed · words that the parser does not know |
//! | `nesting` | how deeply subqueries stand in subqueries |
//! | `names`, `scope` | names as they are written · which column names a statement speaks of, and of which table |
//! | `calls` | table functions: PromQL and LogsQL as tables |
//! | `catalog` | `information_schema` and `pg_catalog` |
//! | `dialect`, `settings` | what clients of PostgreSQL write as the planner knows it · what they set |
//! | `models` | models of analytics as tables |
//! | `planned` | what is refused of a plan before it is made ready |
//! | `engine`, `error` | plans and runs · what DataFusion says as errors with a place and a suggestion |
//!
//! Invariant: statements only read, and know no store: tables and languages come in through traits.

mod calls;
mod catalog;
mod dialect;
mod engine;
mod error;
mod lacking;
mod models;
mod names;
mod nesting;
mod parse;
mod planned;
mod scope;
mod session;
mod settings;
mod steps;
#[cfg(test)]
mod testing;
mod walk;
mod widen;
mod wording;

pub use calls::{CALLS, Call, Languages};
pub use catalog::type_name;
pub use catalog::types::{PG_TYPES, PgType, field_oid, pg_type, type_named, type_oid};
pub use engine::{Described, Explain, Request, SqlEngine, output_name, plan_columns};
pub use error::{Fault, place_of};
pub use parse::{Param, Params, TEXT_BYTES_MAX};
pub use quiver_query::rows::{Answer, Rows};
pub use session::{DATABASE, SERVER_VERSION, Session};
pub use settings::settings;
