//! Access control: revoked rights, hostile callers, what and how much may be written, and what must not be disclosed.

mod bulk_changes;
mod every_post_route;
mod every_route;
mod hidden;
mod hidden_types;
mod hidden_values;
mod hostile;
mod ingest_rights;
mod rate_limits;
mod rights_changes;
mod side_channels;
