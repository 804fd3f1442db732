//! SQL over all telemetry: a statement becomes one plan over the named tables of `quiver_query::tables`.
//!
//! `parse` reads a statement and says what is not allowed, `scope` finds which column names it speaks of and of which
//! table, `wording` knows words that the parser does not, `calls` evaluates table functions (PromQL and LogsQL as tables), `catalog` is `information_schema` and
//! `pg_catalog`, `dialect` puts what clients of PostgreSQL write as the planner knows it, `settings` finds what they set, `models` are those of analytics,
//! `engine` plans and runs. `error` turns what DataFusion says into errors with a place and a suggestion.
//!
//! Invariant: statements only read, and know no store: tables and languages come in through traits.

mod calls;
mod catalog;
mod dialect;
mod engine;
mod error;
mod lacking;
mod models;
mod parse;
mod scope;
mod session;
mod settings;
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
