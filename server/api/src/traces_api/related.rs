//! Other data about a trace: log rows with its id, or of its services at that time, and metric exemplars that name
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use futures::StreamExt;
use quiver_logsql::{QueryScope, trace_rows};
use quiver_query::index::{self, IndexSource};
use quiver_query::{QueryReservation, Rules, from_datafusion};
use quiver_traces::{JsonWriter, Selection, Trace, TraceError};
use quiver_types::scan::batch_bytes;
use quiver_types::spans::hex;
use quiver_types::{Domain, Error, MatchOp, Matcher, MillisRange};
use serde_json::{Value, json};

use super::data::Data;
use super::export::selection;
use super::{Call, problem};
use crate::state::AppState;
use crate::traces_params::TraceParams;

const ROUTE: &str = "/traces/{id}";
/// How far before and after a trace logs are searched, in nanoseconds.
const AROUND: i64 = 60_000_000_000;
/// Bytes of a field beside its name and value.
const FIELD_BYTES: usize = 2 * size_of::<String>() + 32;

/// Log rows, which count in the memory of their query.
struct LogRows {
    rows: Vec<Vec<(String, String)>>,
    memory: QueryReservation,
}

impl LogRows {
    fn push(&mut self, fields: &mut dyn Iterator<Item = (&str, &str)>) -> Result<(), Error> {
        let mut row = Vec::new();
        for (name, value) in fields {
            self.memory.add(FIELD_BYTES + name.len() + value.len())?;
            row.push((name.to_owned(), value.to_owned()));
        }
        self.rows.push(row);
        Ok(())
    }
}

/// The time range around a trace; all time if its spans are unknown.
fn window(params: &TraceParams, trace: Option<&Trace>) -> Result<(i64, i64), TraceError> {
    let before = params.duration("before")?.unwrap_or(AROUND);
    let after = params.duration("after")?.unwrap_or(AROUND);
    Ok(trace.map_or((i64::MIN, i64::MAX), |t| (t.start().saturating_sub(before), t.end().saturating_add(after))))
}

/// Looks up the trace. It is no error if it is missing or hidden, since logs and exemplars may name it all the same.
async fn find(call: &Call, selection: Selection) -> Result<Option<Trace>, TraceError> {
    match call.trace(selection).await {
        Ok(trace) => Ok(Some(trace)),
        Err(TraceError::NotFound | TraceError::Forbidden) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) async fn logs(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let limit = call.params.number("limit", 1..=10_000)?.unwrap_or(1_000);
        let related = call.params.switch("related")?.unwrap_or(false);
        let id = selection.id;
        let trace = find(&call, selection).await?;
        let range = window(&call.params, trace.as_ref())?;
        let spans = trace.iter().filter(|_| related).flat_map(|trace| &trace.spans);
        let services: BTreeSet<&str> = spans.map(|span| span.context.service.as_str()).collect();
        let query = trace_rows::of_trace(&id, services, limit);
        let bound = |t: i64| Some(t).filter(|t| !matches!(*t, i64::MIN | i64::MAX));
        let scope =
            QueryScope { now_ns: call.now, start_ns: bound(range.0), end_ns: bound(range.1), extra: Vec::new() };
        // Logs are subject to the rights for logs, not to those for traces.
        let ctx = call.ctx.another_run_as(call.state.access(Domain::Logs));
        let logsql = &call.state.engines.logsql;
        let mut found = LogRows { rows: Vec::new(), memory: logsql.collected("rows", &ctx) };
        logsql.each_row(&query, &scope, &ctx, |fields| found.push(fields)).await?;
        let LogRows { rows, memory } = found;
        if trace.is_none() && rows.is_empty() {
            return Err(TraceError::NotFound);
        }
        call.ctx.keep(memory);
        let object = |fields: Vec<(String, String)>| -> Value { fields.into_iter().collect() };
        call.answer_data(Data::rows(rows, object), Some(range), None)
    };
    run.await.unwrap_or_else(|e: TraceError| problem(&e, ROUTE))
}

pub(super) async fn exemplars(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let limit = call.params.number("limit", 1..=10_000)?.unwrap_or(1_000) as usize;
        let id = hex(&selection.id);
        let trace = find(&call, selection).await?;
        let range = window(&call.params, trace.as_ref())?;
        let millis = MillisRange::new(range.0.div_euclid(1_000_000), range.1.div_euclid(1_000_000));
        let wanted = vec![vec![Matcher::new("__name__", MatchOp::NotEqual, "")?]];
        let ctx = call.ctx.another_run_as(call.state.access(Domain::Metrics));
        let source = IndexSource::new(call.state.engines.series.snapshot(), &ctx);
        let plan = index::exemplars_of_trace(&source, wanted, millis, &id, limit)?;
        let (engine, inner) = (Arc::clone(&call.state.engines.query), ctx.clone());
        let work = async move {
            let (mut found, memory) = (Vec::new(), engine.collected("exemplars", &inner));
            let mut batches = engine.execute(&plan, &inner, Rules::Direct).await?;
            while let Some(batch) = batches.next().await {
                let batch = batch.map_err(from_datafusion)?;
                memory.add(batch_bytes(&batch))?;
                found.push(batch);
            }
            Ok((found, memory))
        };
        let (found, memory) = call.state.engines.query.run(&ctx, work).await?;
        let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
        if trace.is_none() && rows == 0 {
            return Err(TraceError::NotFound);
        }
        call.ctx.keep(memory);
        let data = Data::written(rows, move |w| w.array(|w| found.iter().for_each(|batch| write_exemplars(batch, w))));
        call.answer_data(data, Some(range), None)
    };
    run.await.unwrap_or_else(|e: TraceError| problem(&e, ROUTE))
}

fn write_exemplars(batch: &RecordBatch, w: &mut JsonWriter<'_>) {
    let object = |column: usize, row: usize| -> Value {
        serde_json::from_str(batch.column(column).as_string::<i32>().value(row)).unwrap_or_default()
    };
    let times = batch.column(2).as_primitive::<Int64Type>();
    let values = batch.column(3).as_primitive::<Float64Type>();
    let row = |row: usize| {
        json!({"series": object(1, row), "labels": object(4, row), "value": values.value(row),
            "time": times.value(row).saturating_mul(1_000_000).to_string()})
    };
    for n in 0..batch.num_rows() {
        if w.is_closed() {
            return;
        }
        w.raw(row(n));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
    use quiver_types::{Access, ErrorKind};

    use super::*;

    #[test]
    fn exemplars_come_with_their_series() {
        let texts = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let times: ArrayRef = Arc::new(Int64Array::from(vec![1500]));
        let values: ArrayRef = Arc::new(Float64Array::from(vec![2.5]));
        let batch = RecordBatch::try_from_iter([
            ("number", texts("1")),
            ("series", texts("{\"job\":\"cart\"}")),
            ("time", times),
            ("value", values),
            ("labels", texts("{\"trace_id\":\"ab\"}")),
        ]);
        let expected = json!({
            "series": {"job": "cart"}, "labels": {"trace_id": "ab"}, "value": 2.5, "time": "1500000000",
        });
        let mut w = JsonWriter::default();
        let batch = batch.unwrap();
        w.array(|w| [&batch, &batch].into_iter().for_each(|batch| write_exemplars(batch, w)));
        let written: Value = serde_json::from_slice(&w.finish().unwrap()).unwrap();
        assert_eq!(written, json!([expected, expected]));
    }

    /// Breaks if long rows are held without being counted.
    #[test]
    fn log_rows_count_in_the_memory_of_their_query() {
        let engine = QueryEngine::new(&EngineSettings::small(1 << 20)).unwrap();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let mut found = LogRows { rows: Vec::new(), memory: engine.collected("rows", &ctx) };
        let text = "x".repeat(100_000);
        let mut push = || found.push(&mut [("_msg", text.as_str()), ("a", "b")].into_iter());
        let error = (0..11).find_map(|_| push().err()).unwrap();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found.rows[0], [pair("_msg", &text), pair("a", "b")]);
        assert!(engine.memory_reserved() >= found.rows.len() * text.len());
    }

    #[test]
    fn what_no_trace_bounds_is_looked_for_everywhere() {
        let read = |query: &str| window(&TraceParams::of_query(Some(query)).unwrap(), None);
        assert_eq!(read("").unwrap(), (i64::MIN, i64::MAX));
        assert_eq!(read("before=5m&after=1s").unwrap(), (i64::MIN, i64::MAX));
        // Invalid parameters are refused all the same.
        assert!(read("before=soon").is_err());
    }
}
