//! Runs the queries of discovery as SQL statements on the usual engine.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use quiver_config::{Problem, ProblemKind, Result};
use quiver_query::tables::DomainAccess;
use quiver_sql::{Answer, Request, Rows};
use quiver_types::{Error, ErrorKind};

use super::derivation::{DerivedResources, ResultRow};
use super::probes::{Probe, Signal, column_of};
use crate::metrics::phases::Language;
use crate::partial_responses::query_context;
use crate::state::AppState;

/// Most rows of a query.
const ROWS_MAX: usize = 20_000;
/// How much earlier than its callee a calling span may have begun.
const CALLER_MS: i64 = 600_000;

fn failed(error: Error) -> Problem {
    match error.kind {
        ErrorKind::Unavailable => Problem::new(ProblemKind::Busy, "STORE_BUSY", error.message),
        _ => Problem { cause: Some(error.message.clone()), ..Problem::internal(error) },
    }
}

/// Runs a statement with access to everything.
async fn rows(state: &AppState, text: String) -> Result<Option<Rows>> {
    let ctx = query_context(state, state.asked(Language::Sql, &text), state.limits());
    let request = Request { text, ..Request::default() };
    match state.engines.sql.query(request, &DomainAccess::full(), &ctx).await.map_err(failed)? {
        Answer::Rows(rows) => Ok(Some(rows)),
        Answer::Plan(_) => Ok(None),
    }
}

fn at(ms: i64) -> String {
    format!("to_timestamp_nanos({})", ms.saturating_mul(1_000_000))
}

/// Runs a query over telemetry that arrived within a time range.
pub(super) async fn run(
    state: &AppState,
    probe: &Probe,
    (since, now): (i64, i64),
    found: &mut DerivedResources,
) -> Result<()> {
    let columns: Vec<String> = probe
        .fields
        .iter()
        .filter_map(|field| column_of(probe.signal, field))
        .map(|c| format!("CAST({c} AS VARCHAR)"))
        .collect();
    let (table, first, last) = match probe.signal {
        Signal::Spans => ("spans", "start_time", "start_time"),
        Signal::Logs => ("logs", "time", "time"),
        Signal::Metrics => ("metric_series", "first_time", "last_time"),
    };
    let groups: Vec<String> = (1..=columns.len()).map(|n| n.to_string()).collect();
    let ms = |what: &str| format!("CAST(arrow_cast({what}, 'Timestamp(Millisecond, Some(\"UTC\"))') AS BIGINT)");
    let text = format!(
        "SELECT {}, {}, {} FROM quiver.{table} WHERE {last} >= {} AND {first} <= {} GROUP BY {} LIMIT {ROWS_MAX}",
        columns.join(", "),
        ms(&format!("min({first})")),
        ms(&format!("max({last})")),
        at(since),
        at(now),
        groups.join(", "),
    );
    let Some(mut rows) = rows(state, text).await? else { return Ok(()) };
    while let Some(batch) = rows.next().await.map_err(failed)? {
        for row in 0..batch.num_rows() {
            let values = (0..columns.len()).map(|n| cell(&batch, n, row)).collect::<Result<Vec<_>>>()?;
            let first_ms = number(&batch, columns.len(), row);
            let last_ms = number(&batch, columns.len() + 1, row);
            found.add(probe, &ResultRow { fields: &probe.fields, values, first_ms, last_ms });
        }
    }
    Ok(())
}

/// Finds calls between services within a time range.
pub(super) async fn edges(state: &AppState, (since, now): (i64, i64), found: &mut DerivedResources) -> Result<()> {
    let text = format!(
        "SELECT DISTINCT caller.service_name, callee.service_name FROM quiver.spans AS callee JOIN quiver.spans AS caller \
         ON callee.trace_id = caller.trace_id AND callee.parent_span_id = caller.span_id \
         WHERE callee.start_time >= {} AND callee.start_time <= {} AND caller.start_time >= {} AND caller.start_time <= {} \
         AND callee.kind IN ('SERVER', 'CONSUMER') AND callee.service_name <> caller.service_name LIMIT {ROWS_MAX}",
        at(since),
        at(now),
        at(since - CALLER_MS),
        at(now)
    );
    let Some(mut rows) = rows(state, text).await? else { return Ok(()) };
    while let Some(batch) = rows.next().await.map_err(failed)? {
        for row in 0..batch.num_rows() {
            if let (Some(from), Some(to)) = (cell(&batch, 0, row)?, cell(&batch, 1, row)?) {
                found.call(&from, &to);
            }
        }
    }
    Ok(())
}

fn cell(batch: &RecordBatch, column: usize, row: usize) -> Result<Option<String>> {
    let value = batch.column(column).slice(row, 1);
    if value.is_null(0) {
        return Ok(None);
    }
    let text = cast(&value, &DataType::Utf8).map_err(Problem::internal)?;
    Ok(Some(text.as_string::<i32>().value(0).to_owned()))
}

/// The integer in a cell; 0 if it is none.
pub(crate) fn number(batch: &RecordBatch, column: usize, row: usize) -> i64 {
    let column = batch.column(column);
    column.as_primitive_opt::<Int64Type>().filter(|c| !c.is_null(row)).map_or(0, |c| c.value(row))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    #[test]
    fn cells_are_texts_and_whole_numbers() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("5"), None]));
        let batch = RecordBatch::try_from_iter([("numbers", numbers), ("texts", texts)]).unwrap();
        for (column, row, expected, text) in [(0, 0, 5, Some("5")), (0, 1, 0, None), (1, 0, 0, Some("5"))] {
            assert_eq!(number(&batch, column, row), expected, "{column}, {row}");
            assert_eq!(cell(&batch, column, row).unwrap().as_deref(), text, "{column}, {row}");
        }
    }

    #[test]
    fn times_of_a_question_stay_times() {
        assert_eq!(at(1500), "to_timestamp_nanos(1500000000)");
        assert_eq!(at(i64::MAX), format!("to_timestamp_nanos({})", i64::MAX));
    }

    #[test]
    fn only_a_busy_store_is_worth_another_try() {
        let busy = failed(Error::new(ErrorKind::Unavailable, "later"));
        assert_eq!((busy.kind, busy.code, busy.detail.as_str()), (ProblemKind::Busy, "STORE_BUSY", "later"));
        let fault = failed(Error::new(ErrorKind::Invalid, "no such column"));
        assert_eq!((fault.kind, fault.cause.as_deref()), (ProblemKind::Internal, Some("no such column")));
        assert!(!fault.detail.contains("column"), "{}", fault.detail);
    }
}
