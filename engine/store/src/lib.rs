//! The store: keeps what is written, and gives queries consistent snapshots of it.
//!
//! A batch goes WAL → generation (visible at once) → part (Parquet on object storage) → compacted part. The catalog
//! says which parts exist; a query reads one snapshot of parts and generations. `docs/internals/write-path.md` lists
//! the modules.
//!
//! Invariant: this crate knows no query language and no engine. They meet it through the traits of
//! `quiver_types::source` and `quiver_types::scan`.

pub mod backup;
pub mod cache;
pub mod catalog;
mod change_log;
mod cleaner;
mod compact;
pub mod consistency_check;
mod core;
mod decoded_cache;
mod disk_space;
mod epoch;
pub mod error;
pub mod failpoint;
mod flush;
mod grace_periods;
mod health;
pub mod idempotency;
mod identity;
pub mod io;
pub mod layout;
pub mod logs;
pub mod lru;
pub mod memtable;
mod metric_metadata;
mod metric_metadata_rows;
pub mod metrics;
pub mod object;
mod offline;
mod outbox;
pub mod part;
pub mod rebuild;
mod record_tables;
pub mod registry;
mod retention;
mod sample_blocks;
pub mod scan;
mod scan_counters;
mod scan_encoding;
pub mod select;
pub mod series_run;
pub mod settings;
pub mod snapshot;
mod spans;
mod steps;
pub mod store;
mod threads;
pub mod timer;
pub mod undrop;
mod upload;
pub mod wal;
pub mod writer;

pub use backup::{BackupReport, BackupRequest, RestoreReport};
pub use compact::rewrite::{RewriteCounts, SpanRewriter};
pub use consistency_check::{CheckReport, check};
pub use error::{Error, ErrorKind, Result};
pub use idempotency::{Answer, AnsweredRequest, KeyedWrite, RequestId};
pub use logs::{logs_source, logs_table};
pub use rebuild::{RebuildReport, rebuild};
pub use scan_encoding::PlanForms;
pub use settings::{CompactionSettings, StoreSettings, WalLevel, WriteSettings};
pub use spans::{SpanSnapshots, attribute_kinds, rollups_table, spans_table, tags_table};
pub use store::{Store, StoreOverrides};
pub use writer::{Refusal, WriteOutcome};
