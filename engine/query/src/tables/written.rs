//! What written plans say of rows of tables: how stored rows become them, and which are read at once.

use std::sync::Arc;

use quiver_types::{Access, MillisRange, SeriesTable};
use serde::{Deserialize, Serialize};

use super::cells::Kind;
use super::metrics::filter::MetricFilter;
use super::spans::columns::Each;

/// A conversion of stored rows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WrittenConvert {
    Spans(WrittenSpans),
    Logs(WrittenLogs),
    Samples(WrittenSamples),
}

/// Spans, and what is told of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenSpans {
    pub(super) each: Each,
    /// Columns before any is given in another form.
    pub(super) schema: Vec<u8>,
    /// What columns hold that were found by name.
    pub(super) kinds: Vec<(String, Kind)>,
    /// The moment of the configuration, where a column follows from it.
    pub(super) configured: Option<u64>,
    /// Columns of ids that are given as bytes.
    pub(super) as_bytes: Vec<usize>,
    pub(super) is_coded: bool,
}

/// Records of logs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenLogs {
    pub(super) schema: Vec<u8>,
    pub(super) kinds: Vec<(String, Kind)>,
}

/// Samples of series.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenSamples {
    pub(super) schema: Vec<u8>,
    pub(super) service_labels: Arc<[String]>,
    pub(super) table: Arc<SeriesTable>,
    pub(super) filter: String,
    pub(super) from_ms: i64,
}

/// Rows that are read at once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WrittenRows {
    History(WrittenHistory),
    Metrics(WrittenList),
}

/// What alerting did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenHistory {
    /// Number of the table.
    pub(super) table: u16,
    pub(super) schema: Vec<u8>,
    pub(super) snapshot: u64,
    pub(super) access: Access,
    /// Whose rows alone are given.
    pub(super) own: Option<String>,
    pub(super) range: MillisRange,
}

/// Which of the lists that the index answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum List {
    Series,
    Metadata,
    Exemplars,
}

/// What the index answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenList {
    pub(super) list: List,
    pub(super) schema: Vec<u8>,
    pub(super) filter: MetricFilter,
    pub(super) snapshot: u64,
    pub(super) access: Access,
    pub(super) service_labels: Arc<[String]>,
    pub(super) samples: u64,
}
