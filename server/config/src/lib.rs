//! Configuration: one contract for every family of entities (`config-api` section 1), over SQL.
//!
//! | Module | What |
//! |---|---|
//! | `family`, `families`, `fields` | a family as data: fields, rules, references, right; one file each |
//! | `entity`, `config`, `db`, `open` | an entity · what all modules share · the tables |
//! | `document`, `query`, `filter`, `place`, `beside`, `kept`, `exported` | reading, listing, exports |
//! | `ordered`, `grouped`, `narrowed`, `values`, `words`, `texts`, `times`, `held` | lists that use indexes, or texts held in memory, instead of reading the whole family |
//! | `change`, `many`, `staged`, `merge` | one change in a transaction with references, history and audit row · many changes · edits that wait for a deploy |
//! | `asked`, `access`, `outside`, `sealing` | what a change asks of the rest of the server · who may see and change an entity |
//! | `idempotency`, `audit`, `jobs`, `saved` | idempotent requests · the audit log · long operations · backups |
//!
//! Invariants: no HTTP (the API maps a [`Problem`]); one request is one transaction; a secret never appears in a
//! response, a history or an audit row.

mod access;
mod area;
mod asked;
mod audit;
mod beside;
mod change;
mod column;
mod config;
mod db;
mod document;
mod encoded;
mod entity;
mod exported;
pub mod failpoint;
pub mod families;
mod family;
mod fields;
mod filter;
mod followed;
pub mod graph;
mod grouped;
mod held;
mod idempotency;
mod jobs;
pub mod json;
mod kept;
mod many;
mod merge;
mod narrowed;
mod open;
mod ordered;
mod outside;
mod place;
mod problem;
mod query;
mod saved;
mod sealing;
mod seen;
mod sort_text;
mod staged;
mod tables;
mod texts;
mod times;
mod usage;
mod values;
mod words;

pub use access::must_have;
pub use area::Area;
pub use asked::{Checks, Part, Sealer};
pub use audit::{AuditEvent, AuditQuery, Verified};
pub use change::{Condition, Done, Op, System};
pub use config::Config;
pub use db::migrate;
pub use entity::{Drafted, Entity, diff};
pub use exported::{Exported, Exporting};
pub use family::{Caller, Family, Hook, KEPT, KeyBounds, Link, Making, OnDelete, Prepare, Rows};
pub use fields::{Field, Kind, Mode, duration_ms};
pub use followed::Followed;
pub use idempotency::{Begun, Named};
pub use jobs::{Job, NewJob};
pub use many::{Failed, ImportMode, Imported};
pub use outside::Outside;
pub use place::Place;
pub use problem::{FieldError, Problem, ProblemKind, Result};
pub use query::{ListQuery, Page};
pub use quiver_database::Schema;
pub use quiver_types::ChangeMode;
pub use saved::{Loaded, Saved};
pub use seen::{Seen, ServiceAlerts};
pub use staged::Release;
pub use tables::SCHEMA;
pub use usage::KeyUse;

#[cfg(test)]
mod tests;
