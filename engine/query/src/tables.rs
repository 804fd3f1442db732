//! The tables that SQL, analytics and the PostgreSQL port can name.
//!
//! They are in two schemas: `public` has the operator's own tables, `quiver` those of the product. A name without a
//! schema is looked up in `public` first. A third schema, `olap`, has the models of analytics (`models`).

mod ask;
pub(crate) mod at_once;
pub(crate) mod cells;
pub mod configured;
pub(crate) mod convert;
mod episodes;
mod history;
mod keys;
pub mod listed;
pub(crate) mod logs;
mod lower;
mod metrics;
pub mod models;
mod named;
pub mod processes;
pub(crate) mod reading;
pub mod resources;
pub mod rules;
mod snapshot;
mod spans;
mod views;
pub(crate) mod written;

pub use cells::TextMaps;
pub use named::TableSources;
pub use snapshot::{
    DomainAccess, Moment, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableEntry, TableRequest, TableSnapshot, Tables,
};
