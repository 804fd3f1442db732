//! The store: what is written, where it lies, and what a query may see of it.
//!
//! A batch goes WAL → generation (visible at once) → part (Parquet on object storage) → compacted part; the catalog
//! says which parts exist, and a query reads one snapshot of parts and generations (`architecture` 4 to 8).
//! Invariant: this crate knows no query language; it meets them in `quiver_types::source` and in DataFusion's
//! `TableProvider`.

pub mod cache;
pub mod error;
pub mod failpoint;
pub mod io;
pub mod layout;
pub mod metrics;
pub mod part;
pub mod run;
pub mod settings;

pub use error::{Error, ErrorKind, Result};
pub use settings::{CompactionSettings, StoreSettings, WalLevel, WriteSettings};
