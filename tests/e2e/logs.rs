//! Logs over HTTP: the ways in, queries, and what ends them.

mod filters;
mod hostile;
mod ingest;
mod language;
mod once;
pub(crate) mod query;
mod refused;
mod tail;
