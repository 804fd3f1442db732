//! Who may see and do what: rights that end, hostile callers, what and how much may be written, what must not be learnt.

mod hidden;
mod hostile;
mod ingest_rights;
mod later;
mod many;
mod rates;
mod unlearnt;
mod walk;
mod walk_posts;
