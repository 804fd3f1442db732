//! Reads table rows from serialized plans.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;

use super::convert::{Convert, ConvertExec};
use super::encoding::{WrittenConvert, WrittenRows};
use super::history::HistoryScan;
use super::logs::convert::LogRows;
use super::materialized::ReadAtOnce;
use super::metrics::lists::Listing;
use super::metrics::samples::SampleRows;
use super::named_table::NamedTable as _;
use super::spans::SpanTable;
use super::spans::convert::SpanRows;
use crate::encoding::context::At;

/// Builds a conversion from its serialized form and its input.
pub(crate) fn conversion(
    rows: WrittenConvert,
    input: Arc<dyn ExecutionPlan>,
    limit: Option<usize>,
    at: &At<'_>,
) -> Result<ConvertExec> {
    let (table, convert, columns) = convert(rows, at)?;
    if input.schema().fields().len() < columns {
        return internal_err!("the input of a conversion has other columns");
    }
    Ok(ConvertExec::new(table, input, convert, limit))
}

/// The table, the conversion, and the least number of columns that it reads.
fn convert(rows: WrittenConvert, at: &At<'_>) -> Result<(&'static str, Arc<dyn Convert>, usize)> {
    match rows {
        WrittenConvert::Spans(rows) => {
            let table = SpanTable(rows.row_kind).name();
            SpanRows::read(rows, at).map(|(convert, columns)| (table, convert, columns))
        }
        WrittenConvert::Logs(rows) => LogRows::read(rows, at).map(|(convert, columns)| ("logs", convert, columns)),
        WrittenConvert::Samples(rows) => Ok(("metric_samples", SampleRows::read(rows, at)?, 0)),
    }
}

/// Builds a source of rows that are read at once, where the plan is read.
pub(crate) fn rows(rows: WrittenRows, at: &At<'_>) -> Result<Arc<dyn ReadAtOnce>> {
    Ok(match rows {
        WrittenRows::History(rows) => Arc::new(HistoryScan::read_from(rows, at)?),
        WrittenRows::Metrics(rows) => Arc::new(Listing::read_from(rows, at)?),
    })
}
