//! Who may see and do what: rights that end, hostile callers, what and how much may be written, what must not be learnt.

mod bulk_changes;
mod every_post_route;
mod every_route;
mod hidden;
mod hostile;
mod ingest_rights;
mod rate_limits;
mod rights_changes;
mod side_channels;
