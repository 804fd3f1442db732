//! What written plans say of rows of tables: how stored rows become them, and which are read at once.

use std::sync::Arc;

use datafusion::error::Result;
use quiver_types::{Access, MillisRange, SeriesTable};
use serde::{Deserialize, Serialize};

use super::at_once::ReadAtOnce;
use super::cells::Kind;
use super::convert::Convert;
use super::history::Reading;
use super::logs::LogRows;
use super::metrics::{List, Listing, MetricFilter, SampleRows};
use super::named::NamedTable as _;
use super::spans::{Each, SpanRows, SpanTable};
use crate::forms::At;

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

impl WrittenConvert {
    /// Reads it: the table, the conversion, and how many columns it reads at least.
    pub(super) fn read(self, at: &At<'_>) -> Result<(&'static str, Arc<dyn Convert>, usize)> {
        match self {
            Self::Spans(rows) => {
                let table = SpanTable(rows.each).name();
                SpanRows::read(rows, at).map(|(convert, columns)| (table, convert, columns))
            }
            Self::Logs(rows) => LogRows::read(rows, at).map(|(convert, columns)| ("logs", convert, columns)),
            Self::Samples(rows) => Ok(("metric_samples", SampleRows::read(rows, at)?, 0)),
        }
    }
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

impl WrittenRows {
    /// Makes what reads them again, where the plan is read.
    pub(crate) fn read(self, at: &At<'_>) -> Result<Arc<dyn ReadAtOnce>> {
        Ok(match self {
            Self::History(rows) => Arc::new(Reading::read_from(rows, at)?),
            Self::Metrics(rows) => Arc::new(Listing::read_from(rows, at)?),
        })
    }
}
