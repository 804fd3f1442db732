//! Configuration: one contract for every family of entities (`config-api` section 1), over SQL.
//!
//! A family is data (`family`, `families`): its fields, rules, references, right, and a file of its own; its entities
//! (`entity`) are all alike. Everything that can be asked of it is here once, over what all of it shares (`config`):
//! `document` reads and lists (`query`, `filter`; by indexes: `ordered`, `grouped`, `narrowed` over `values`, `words` and
//! `texts`; from memory: `held`), `change` makes one change within a transaction with its references, history and audit
//! row, `many` makes many, `answered` repeats answers of requests that name themselves, `audit` keeps a chain of who did
//! what, `saved` writes all of it into a file and reads it.
//!
//! Invariants: no HTTP (the API maps a [`Problem`]); one request is one transaction; what is secret is never in an
//! answer, a history or an audit row.

mod access;
mod answered;
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
pub mod failpoint;
pub mod families;
mod family;
mod fields;
mod filter;
pub mod graph;
mod grouped;
mod held;
mod jobs;
pub mod json;
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
pub use answered::{Begun, Named};
pub use area::Area;
pub use asked::{Checks, Part, Sealer};
pub use audit::{AuditEvent, AuditQuery, Verified};
pub use change::{Condition, Done, Op, System};
pub use config::Config;
pub use db::migrate;
pub use entity::{Drafted, Entity, diff};
pub use family::{Caller, Family, Hook, KEPT, KeyBounds, Link, Making, OnDelete, Prepare, Rows};
pub use fields::{Field, Kind, Mode, duration_ms};
pub use jobs::{Job, NewJob};
pub use many::{Failed, ImportMode, Imported};
pub use outside::Outside;
pub use place::Place;
pub use problem::{FieldError, Problem, ProblemKind, Result};
pub use query::{ListQuery, Page};
pub use quiver_database::Schema;
pub use saved::{Loaded, Saved};
pub use seen::{Seen, ServiceAlerts};
pub use staged::Release;
pub use tables::SCHEMA;
pub use usage::KeyUse;

#[cfg(test)]
mod tests;
