//! Logs over HTTP: the ways in, queries, and what ends them.

mod filters;
mod hostile;
mod idempotency;
mod ingest;
mod language;
mod many_groups;
pub(crate) mod query;
mod refusals;
mod tail;
