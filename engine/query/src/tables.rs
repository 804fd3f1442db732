//! The tables that SQL, analytics and the PostgreSQL port can name.
//!
//! They are in two schemas: `public` has the operator's own tables, `quiver` those of the product. A name without a
//! schema is looked up in `public` first. A third schema, `olap`, has the models of analytics (`models`).

pub(crate) mod cells;
pub mod config_columns;
pub mod config_tables;
pub(crate) mod convert;
pub(crate) mod decoding;
pub(crate) mod encoding;
mod episodes;
mod filter_lowering;
mod history;
mod key_transactions;
pub(crate) mod logs;
pub(crate) mod materialized;
mod metrics;
pub mod models;
mod named_table;
pub mod processes;
mod registry;
pub mod resources;
pub mod rules;
mod seen_kinds;
mod snapshot;
mod spans;
mod views;

pub use cells::TextMaps;
pub use registry::TableSources;
pub use snapshot::{
    DomainAccess, PUBLIC_SCHEMA, QUIVER_SCHEMA, SnapshotVersion, StoredData, TableEntry, TableRequest, TableSnapshot,
    Tables,
};
