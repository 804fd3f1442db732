//! Configuration: one contract for every family of entities (`config-api` section 1), over SQL.
//!
//! | Module | What |
//! |---|---|
//! | `family`, `families`, `fields` | a family as data: fields, rules, references, right; one file each |
//! | `entity`, `config`, `migrations`, `open` | an entity · what all modules share · the tables |
//! | `document`, `listing`, `query`, `filter`, `entity_place`, `derived_fields`, `page_buffer`, `export` | reading, listing, exports |
//! | `index_order`, `grouped_pages`, `sql_filter`, `value_index`, `distinct_texts`, `text_index`, `time_filters`, `text_cache` | lists that use indexes, or texts held in memory, instead of reading the whole family |
//! | `change`, `bulk`, `deploy`, `merge` | one change in a transaction with references, history and audit row · many changes · edits that wait for a deploy |
//! | `server_checks`, `access`, `external_entities`, `sealing`, `vault_check` | what a change asks of the rest of the server · who may see and change an entity · encrypted texts, and whether a master key opens them |
//! | `idempotency`, `audit`, `jobs`, `backup` | idempotent requests · the audit log · long operations · backups |
//!
//! Invariants: no HTTP (the API maps a [`Problem`]); one request is one transaction; a secret never appears in a
//! response, a history or an audit row.

mod access;
mod area;
mod audit;
mod backup;
mod bulk;
mod change;
mod column;
mod config;
mod deploy;
mod derived_fields;
mod distinct_texts;
mod document;
mod entity;
mod entity_place;
mod export;
mod external_entities;
pub mod failpoint;
pub mod families;
mod family;
mod family_followers;
mod fields;
mod filter;
pub mod graph;
mod grouped_pages;
mod idempotency;
mod index_order;
mod jobs;
pub mod json;
mod key_usage;
mod last_seen;
mod listing;
mod merge;
mod migrations;
mod open;
mod page_buffer;
mod pieces;
mod problem;
mod query;
mod sealing;
mod server_checks;
mod sort_encoding;
mod sort_text;
mod sql_filter;
mod tables;
mod text_cache;
mod text_index;
mod time_filters;
mod value_index;
mod vault_check;

pub use access::must_have;
pub use area::Area;
pub use audit::{AuditEvent, AuditQuery, ChainVerification};
pub use backup::{BackupFile, RestoreOutcome};
pub use bulk::{FailedItem, ImportMode, ImportOptions, ImportOutcome};
pub use change::{ChangeOutcome, Condition, Op, ReadOnlyPolicy, System};
pub use config::Config;
pub use deploy::Release;
pub use entity::{DraftContent, Entity, diff};
pub use entity_place::Place;
pub use export::{CompressedExport, ExportWriter};
pub use external_entities::ExternalEntity;
pub use family::{Caller, ChangeContext, EntityChange, Family, Hook, KEPT, KeyBounds, Link, OnDelete, Prepare, Rows};
pub use family_followers::FamilyCache;
pub use fields::{Field, FieldKind, Mode, duration_ms};
pub use idempotency::{IdempotentRequest, ReplayStatus};
pub use jobs::{Job, NewJob};
pub use key_usage::KeyUse;
pub use last_seen::{ResourceSighting, ServiceAlerts};
pub use migrations::migrate;
pub use problem::{FieldError, Problem, ProblemKind, Result};
pub use query::{ListQuery, Page};
pub use quiver_database::Schema;
pub use quiver_types::ChangeMode;
pub use server_checks::{Checks, ComponentEntity, Sealer};
pub use tables::SCHEMA;
pub use vault_check::{KeyFit, claim, forget_secrets, key_fit};

#[cfg(test)]
mod tests;
