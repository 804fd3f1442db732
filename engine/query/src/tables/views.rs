//! Tables that are defined as statements over others: `traces`, `service_edges`, `operations`. Their filters reach
//! the scans below as far as DataFusion pushes them down, and the caller's rights apply there.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use futures::future::BoxFuture;
use quiver_types::{Domain, MillisRange, Result};

use super::cells::{text, time};
use super::named_table::{Ask, NamedTable, Since};
use super::spans::SpanTable;
use super::spans::columns::SpanRowKind;
use crate::name_resolution::Names;

/// A table that is a statement over `spans`.
#[derive(Debug)]
pub(super) struct View {
    name: &'static str,
    columns: fn() -> Vec<Field>,
    statement: &'static str,
}

/// Traces: repeated reports of a span count once; client and server spans with one shared id count as two.
pub(super) const TRACES: View = View { name: "traces", columns: trace_columns, statement: TRACES_SQL };
/// Calls between services by minute.
pub(super) const SERVICE_EDGES: View =
    View { name: "service_edges", columns: edge_columns, statement: SERVICE_EDGES_SQL };
/// Operations of services by minute.
pub(super) const OPERATIONS: View = View { name: "operations", columns: operation_columns, statement: OPERATIONS_SQL };

fn count(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn trace_columns() -> Vec<Field> {
    let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
    vec![
        text("trace_id"),
        time("start_time", TimeUnit::Nanosecond),
        time("end_time", TimeUnit::Nanosecond),
        count("duration"),
        text("root_service"),
        text("root_name"),
        count("spans"),
        count("errors"),
        Field::new("services", DataType::List(item), true),
    ]
}

fn edge_columns() -> Vec<Field> {
    let mut columns = vec![time("time", TimeUnit::Nanosecond), text("caller"), text("callee")];
    columns.extend(["calls", "errors", "duration_sum", "duration_max"].map(count));
    columns
}

fn operation_columns() -> Vec<Field> {
    let mut columns = vec![time("time", TimeUnit::Nanosecond), text("service_name"), text("name"), text("kind")];
    columns.extend(["spans", "errors", "duration_sum", "duration_max"].map(count));
    columns
}

const TRACES_SQL: &str = "
SELECT trace_id, min(start_time) AS start_time, max(end_time) AS end_time,
    CAST(max(end_time) AS BIGINT) - CAST(min(start_time) AS BIGINT) AS duration,
    first_value(service_name ORDER BY start_time, span_id) FILTER (WHERE is_root) AS root_service,
    first_value(name ORDER BY start_time, span_id) FILTER (WHERE is_root) AS root_name,
    count(*) AS spans, sum(error) AS errors,
    array_agg(DISTINCT service_name ORDER BY service_name) FILTER (WHERE service_name IS NOT NULL) AS services
FROM (
    SELECT trace_id, span_id, kind, service_name, min(name) AS name, min(start_time) AS start_time,
        max(end_time) AS end_time, max(CASE WHEN status_code = 'ERROR' THEN 1 ELSE 0 END) AS error,
        bool_and(parent_span_id IS NULL) AS is_root
    FROM spans GROUP BY trace_id, span_id, kind, service_name
) AS merged GROUP BY trace_id";

/// Repeated reports of a span within a minute count as one call, however many there are of either end.
const SERVICE_EDGES_SQL: &str = "
SELECT time, caller, callee, count(*) AS calls, sum(error) AS errors, sum(duration) AS duration_sum,
    max(duration) AS duration_max
FROM (
    SELECT date_trunc('minute', callee.start_time) AS time, caller.service_name AS caller,
        callee.service_name AS callee, max(CASE WHEN callee.status_code = 'ERROR' THEN 1 ELSE 0 END) AS error,
        max(callee.duration) AS duration
    FROM spans AS callee JOIN spans AS caller
        ON callee.trace_id = caller.trace_id AND callee.parent_span_id = caller.span_id
    WHERE callee.service_name <> caller.service_name
    GROUP BY callee.trace_id, callee.span_id, callee.kind, date_trunc('minute', callee.start_time),
        caller.service_name, callee.service_name
) AS merged GROUP BY time, caller, callee";

const OPERATIONS_SQL: &str = "
SELECT date_trunc('minute', start_time) AS time, service_name, name, kind, count(*) AS spans,
    sum(CASE WHEN status_code = 'ERROR' THEN 1 ELSE 0 END) AS errors,
    sum(duration) AS duration_sum, max(duration) AS duration_max
FROM spans GROUP BY date_trunc('minute', start_time), service_name, name, kind";

impl NamedTable for View {
    fn name(&self) -> &'static str {
        self.name
    }

    fn domain(&self) -> Domain {
        Domain::Traces
    }

    fn columns(&self) -> SchemaRef {
        Arc::new(Schema::new((self.columns)()))
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn is_unchanged(&self, since: &Since<'_>) -> Option<bool> {
        // The times of their rows are not the start times of spans, by which changes are recorded.
        let is_known = since.range == MillisRange::ALL;
        is_known.then(|| since.sources.spans.is_unchanged(since.then.spans, since.range))
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let below = Ask {
                sources: ask.sources,
                found: &[],
                by_domain: ask.by_domain,
                typed_by: ask.typed_by,
                ctx: ask.ctx,
            };
            let spans = SpanTable(SpanRowKind::Span).open(&below).await?;
            let mut names = Names::new(ask.sources.engine.relational());
            names.add(None, "spans", spans);
            let plan = names.plan(self.statement)?;
            Ok(Arc::new(ViewTable::new(plan, Some(self.statement.to_owned()))) as Arc<dyn TableProvider>)
        })
    }
}
