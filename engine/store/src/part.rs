//! One immutable part: a few Parquet files with one id, `<table>/<yyyy-mm-dd>/<part>.<kind>.parquet`.
//!
//! [`PartMeta`] is what the catalog and the commit objects say about it, [`PartWriter`] and [`write_rows_part`] make
//! it, [`Part`] reads it. Every file is checked: the row groups by a CRC32C per 64 KiB, the tail (page indexes and
//! footer) by one that stands in [`FileMeta`]. The layout is written down in `docs/formats/part.md`.

pub(crate) mod bloom;
mod byte_ranges;
mod checksum;
mod decimal;
mod directory;
mod exemplars;
mod file;
mod float_samples;
mod footer;
mod histogram_samples;
mod index;
mod label_pairs;
mod label_rows;
mod labels;
pub(crate) mod logs;
mod metric_names;
mod reader;
mod row_groups;
mod rows;
mod run_reader;
mod samples_file;
mod series;
mod series_file;
pub(crate) mod spans;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod writer;

use quiver_types::time::day_name;
use quiver_types::{Access, MillisRange};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use checksum::BLOCK_BYTES;

pub(crate) use byte_ranges::Purpose;
pub(crate) use file::PAGE_ROWS;
pub use float_samples::StartTimes;
pub use footer::Footer;
pub(crate) use index::LabelIndex;
pub(crate) use index::memory::MemoryIndex;
pub use metric_names::NameFilter;
pub use reader::Part;
pub use rows::write_rows_part;
pub(crate) use rows::{RowPieces, RowsPartWriter};
pub use run_reader::RunReader;
pub use series::ChosenSeries;
pub use series::page::{SeriesPage, SeriesRows};
pub use writer::PartWriter;

/// Version of the files' layout, as it stands in each footer.
pub const PART_FORMAT: u32 = 1;

/// Kinds of files, numbered for cache keys.
pub(crate) const KINDS: [&str; 10] =
    ["series", "samples", "histograms", "exemplars", "index", "rows", "streams", "rollup", "labels", "traces"];

/// More services than this are not listed in [`PartMeta::services`].
pub const SERVICES_MAX: usize = 1000;

/// The identity of a part (UUIDv7).
pub type PartId = Uuid;

/// Where a part's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// On the local disk, waiting for their upload.
    Spool,
    /// In the object store.
    Store,
}

/// Where a part came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PartOrigin {
    /// From a generation.
    Flushed {
        /// Writer of the generation.
        writer: Uuid,
        /// Number of the generation.
        generation: u64,
        /// Id of the flush; each attempt has another one.
        flush_id: Uuid,
        /// Number of this part among those of the flush, from 0.
        output: u32,
        /// How many parts the flush wrote.
        outputs: u32,
    },
    /// From other parts.
    Compacted {
        /// Id of the compaction that made it and its siblings.
        compaction_id: Uuid,
        /// The parts that this one and its siblings replace.
        replaced: Vec<PartId>,
    },
}

/// One file of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMeta {
    /// `series`, `samples`, …
    pub kind: String,
    /// Key of the object: `<table>/<yyyy-mm-dd>/<part>.<kind>.parquet`.
    pub key: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Number of rows in the file.
    pub rows: u64,
    /// Length of the tail: page indexes and footer.
    pub tail_len: u64,
    /// CRC32C of the tail.
    pub tail_crc: u32,
}

/// What the catalog and the commit objects know about a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartMeta {
    /// Id of the part, which all its files bear in their names.
    pub id: PartId,
    /// Name of the table.
    pub table: String,
    /// UTC day, in days since 1970.
    pub day: i32,
    /// 0 flushed, 1 aligned window, 2 day.
    pub level: u8,
    /// Where the files are.
    pub place: Place,
    /// Earliest time of anything in it, Unix milliseconds.
    pub min_ts: i64,
    /// Latest time of anything in it, Unix milliseconds.
    pub max_ts: i64,
    /// Rows of data: samples, histograms and exemplars, or those of the one file.
    pub rows: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Series in it; 0 for tables without series.
    pub series: u64,
    /// Services in it, sorted, the empty text for "none"; empty when there are too many.
    pub services: Vec<String>,
    /// Whether there are more services than are listed.
    pub services_all: bool,
    /// A filter of the metric names in it.
    pub names: NameFilter,
    /// Whether it holds native histograms.
    pub has_histograms: bool,
    /// Start of the window of a part of level 1, Unix milliseconds; else 0.
    pub window: i64,
    /// Where it came from.
    pub origin: PartOrigin,
    /// Its files, one of each kind that the table has and that is not empty.
    pub files: Vec<FileMeta>,
}

impl PartMeta {
    /// Finds a file by kind.
    pub fn file(&self, kind: &str) -> Option<&FileMeta> {
        self.files.iter().find(|f| f.kind == kind)
    }

    /// First and last time.
    pub fn range(&self) -> MillisRange {
        MillisRange::new(self.min_ts, self.max_ts)
    }

    /// Says whether it may hold a service that the caller may see.
    pub(crate) fn may_show(&self, access: &Access) -> bool {
        access.is_full() || self.services_all || self.services.iter().any(|s| access.allows(s))
    }
}

/// What is known of a part before it is written.
#[derive(Debug, Clone)]
pub struct PartSpec {
    /// Name of the table.
    pub table: String,
    /// UTC day, in days since 1970.
    pub day: i32,
    /// 0 flushed, 1 aligned window, 2 day.
    pub level: u8,
    /// Id of the part, which all its files bear in their names.
    pub id: PartId,
    /// Where it comes from.
    pub origin: PartOrigin,
    /// Where its files will be.
    pub place: Place,
    /// Start of the window of a part of level 1; else 0.
    pub window: i64,
    /// How strongly to compress.
    pub compression: PartCompression,
}

impl PartSpec {
    /// Describes the part, once its rows are known: their times in Unix milliseconds, their number, and their services in
    /// order, which are listed up to [`SERVICES_MAX`]. It has neither series, names nor files yet.
    pub(crate) fn describe(&self, (min_ts, max_ts): (i64, i64), rows: u64, services: Vec<String>) -> PartMeta {
        let services_all = services.len() > SERVICES_MAX;
        PartMeta {
            id: self.id,
            table: self.table.clone(),
            day: self.day,
            level: self.level,
            place: self.place,
            min_ts,
            max_ts,
            rows,
            bytes: 0,
            series: 0,
            services: if services_all { Vec::new() } else { services },
            services_all,
            names: NameFilter::default(),
            has_histograms: false,
            window: self.window,
            origin: self.origin.clone(),
            files: Vec::new(),
        }
    }
}

/// How strongly the files of a part are compressed. Samples use lz4 in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartCompression {
    /// lz4: the part will be rewritten soon.
    Fresh,
    /// zstd where it saves much.
    Compacted,
}

/// Gives the key of a file of a part.
pub fn part_key(table: &str, day: i32, id: PartId, kind: &str) -> String {
    format!("{table}/{}/{id}.{kind}.parquet", day_name(day))
}

/// Gives the keys that a part of these kinds of files may get, for the catalog's list of pending keys.
pub fn planned_keys(table: &str, day: i32, id: PartId, kinds: &[&str]) -> Vec<String> {
    kinds.iter().map(|kind| part_key(table, day, id, kind)).collect()
}

/// Number of a kind of file in cache keys.
fn kind_number(kind: &str) -> u8 {
    KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len()) as u8
}
