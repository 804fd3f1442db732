//! The whole configuration as one file, for backups: a consistent copy of the rows of all tables, from SQLite or
//! PostgreSQL, which can be restored into an empty database of either kind.
//!
//! The file has lines of JSON, compressed with zstd: a [`Head`], then for each table its [`TableHead`] and a line per
//! row, then the [`End`]. `docs/formats/configuration.md` describes it. Encrypted values stay encrypted. The master key
//! is never in the file, but needed to restore it, and it proves that the file has not been modified.

mod load;
mod save;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use load::{BackupFile, RestoreOutcome};

/// Version of the format.
const FORMAT: u32 = 1;
/// Under which names the master key seals what proves that it is the one, and that the file is as it was written.
const KEY_PLACE: &str = "saved configuration: key";
const END_PLACE: &str = "saved configuration: end";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// Version of the format.
    quiver_configuration: u32,
    /// Version of the build that wrote it.
    version: String,
    /// When, Unix milliseconds.
    saved_ms: i64,
    /// How many steps of each part's tables were applied.
    steps: BTreeMap<String, i64>,
    /// Number of the last audit row: each change of configuration makes one.
    audit: i64,
    /// `saved_ms` as text, sealed.
    key: String,
}

/// What comes before the rows of a table.
#[derive(Debug, Serialize, Deserialize)]
struct TableHead {
    table: String,
    columns: Vec<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
struct End {
    /// How many rows there are in all tables.
    rows: u64,
    /// SHA-256 of all lines before, sealed.
    seal: String,
}
