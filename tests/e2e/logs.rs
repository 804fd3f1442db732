//! Logs over HTTP: ingestion, queries, and how queries end.

mod filters;
mod hostile;
mod idempotency;
mod ingest;
mod language;
mod many_groups;
pub(crate) mod query;
mod refusals;
mod tail;
