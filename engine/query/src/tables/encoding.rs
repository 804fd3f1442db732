//! Serialized forms of table rows: how stored rows are converted, and which rows are read at once.

use std::sync::Arc;

use quiver_types::{Access, MillisRange, SeriesTable};
use serde::{Deserialize, Serialize};

use super::cells::CellKind;
use super::metrics::filter::MetricFilter;
use super::spans::columns::SpanRowKind;

/// A conversion of stored rows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WrittenConvert {
    Spans(WrittenSpans),
    Logs(WrittenLogs),
    Samples(WrittenSamples),
}

/// A conversion of spans.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenSpans {
    pub(super) row_kind: SpanRowKind,
    /// The columns before the form of any is changed, as an Arrow schema in IPC form.
    pub(super) schema: Vec<u8>,
    /// The kinds of columns that were found by name.
    pub(super) kinds: Vec<(String, CellKind)>,
    /// The version of the configuration, if a column depends on it.
    pub(super) configured: Option<u64>,
    /// Columns of ids that are returned as bytes.
    pub(super) as_bytes: Vec<usize>,
    pub(super) is_coded: bool,
}

/// A conversion of log records.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenLogs {
    pub(super) schema: Vec<u8>,
    pub(super) kinds: Vec<(String, CellKind)>,
}

/// A conversion of samples.
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

/// Rows of a history table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenHistory {
    pub(super) table: u16,
    pub(super) schema: Vec<u8>,
    pub(super) snapshot: u64,
    pub(super) access: Access,
    /// The caller whose rows are returned; `None` for all.
    pub(super) own: Option<String>,
    pub(super) range: MillisRange,
}

/// The lists that are read from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum List {
    Series,
    Metadata,
    Exemplars,
}

/// Rows that are read from the index.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenList {
    pub(super) list: List,
    pub(super) schema: Vec<u8>,
    pub(super) filter: MetricFilter,
    pub(super) snapshot: u64,
    pub(super) access: Access,
    pub(super) service_labels: Arc<[String]>,
}
