//! Cardinality: the number of series, and the names and labels that most of them have.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`serveTSDBStatus`), `tsdb/index/postings.go` (`Stats`). Prometheus
//! counts the series of its head block; here all series in the index of live data and parts are counted.

use std::iter::once;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, UInt64Type};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use quiver_query::index::{CardinalityResult, IndexSource, cardinality};
use quiver_query::{QueryContext, QueryEngine, QueryReservation, Rules, from_datafusion};
use quiver_store::snapshot::Visible;
use quiver_types::tables::metrics;
use quiver_types::{Error, MillisRange, Result};
use serde_json::{Value, json};

use crate::encode::json::json_body;
use crate::encode::prometheus::{Envelope, begin_success, close_success, error_response};
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::state::AppState;
use crate::streamed_responses::in_pieces;

const ROUTE: &str = "/api/v1/status/tsdb";
/// Default number of entries per list.
const LIMIT: usize = 10;
/// Largest number of entries per list.
const LIMIT_MAX: usize = 10_000;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(boxed(status)))
}

async fn status(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let counted = async {
        let params = Params::of(&state, request).await?;
        let limit = limit(&params)?;
        let ctx = state.context(Language::Series);
        let (snapshot, inner) = (state.engines.series.snapshot(), ctx.clone());
        // Parts are not separated by service: a caller who does not see all services learns nothing of their number
        // and time ranges.
        let head = if ctx.access.is_full() { Head::of(&state.engines.store.visible()) } else { Head::nothing() };
        let source = IndexSource::new(snapshot, &ctx);
        let engine = Arc::clone(&state.engines.query);
        let work = async move { count(&engine, &source, &head, limit, &inner).await };
        state.engines.query.run(&ctx, work).await
    };
    match counted.await {
        Ok(status) => json_body(in_pieces(status.pieces())),
        Err(e) => error_response(&e, ROUTE),
    }
}

fn limit(params: &Params) -> Result<usize> {
    match params.get("limit").map(str::parse::<i64>) {
        None => Ok(LIMIT),
        Some(Ok(n)) if n > LIMIT_MAX as i64 => Err(Error::invalid(format!("limit must not exceed {LIMIT_MAX}"))),
        Some(Ok(n)) if n > 0 => Ok(n as usize),
        Some(_) => Err(Error::invalid("limit must be a positive number")),
    }
}

/// Counts and time range of the data.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    /// Runs of samples of one series: one for each part and each generation of live data that has the series.
    chunks: u64,
    min_ms: i64,
    max_ms: i64,
}

impl Head {
    /// No data: the minimum is above the maximum, as in Prometheus.
    fn nothing() -> Self {
        Self { chunks: 0, min_ms: i64::MAX, max_ms: i64::MIN }
    }

    fn of(visible: &Visible) -> Self {
        let mut head = Self::nothing();
        for part in visible.table(metrics::TABLE.name) {
            head.add(part.meta.series, Some(part.meta.range()));
        }
        for generation in &visible.generations {
            head.add(generation.series() as u64, generation.range());
        }
        head
    }

    fn add(&mut self, series: u64, range: Option<MillisRange>) {
        self.chunks += series;
        if let Some(range) = range {
            self.min_ms = self.min_ms.min(range.min);
            self.max_ms = self.max_ms.max(range.max);
        }
    }
}

/// Runs a plan and returns its rows; `held` grows by their memory.
async fn rows(
    engine: &QueryEngine,
    plan: &LogicalPlan,
    ctx: &QueryContext,
    held: &QueryReservation,
) -> Result<Vec<RecordBatch>> {
    let mut batches = engine.execute(plan, ctx, Rules::Direct).await?;
    let mut out = Vec::new();
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(from_datafusion)?;
        held.add(batch.get_array_memory_size())?;
        out.push(batch);
    }
    Ok(out)
}

/// The index is read once; the lists are plans over these counts.
async fn count(
    engine: &QueryEngine,
    source: &IndexSource,
    head: &Head,
    limit: usize,
    ctx: &QueryContext,
) -> Result<Status> {
    let held = engine.collected("cardinality", ctx);
    let counted = CardinalityResult::new(rows(engine, &cardinality(source)?, ctx, &held).await?)?;
    let totals = rows(engine, &counted.totals()?, ctx, &held).await?;
    let total = |column: usize| -> u64 {
        let row = totals.iter().find(|batch| batch.num_rows() > 0);
        let value = row.and_then(|row| arrow::compute::cast(row.column(column), &DataType::UInt64).ok());
        value.map_or(0, |value| value.as_primitive::<UInt64Type>().iter().flatten().sum())
    };
    let head = json!({
        "numSeries": total(0),
        "numLabelPairs": total(1),
        "chunkCount": head.chunks,
        "minTime": head.min_ms,
        "maxTime": head.max_ms,
    });
    let lists = [
        ("seriesCountByMetricName", counted.metrics(limit)?),
        ("labelValueCountByLabelName", counted.labels(limit)?),
        ("memoryInBytesByLabelName", counted.bytes(limit)?),
        ("seriesCountByLabelValuePair", counted.pairs(limit)?),
    ];
    let mut found = Vec::with_capacity(lists.len());
    for (name, plan) in lists {
        found.push((name, rows(engine, &plan, ctx, &held).await?));
    }
    Ok(Status { head, lists: found, held })
}

/// The counts, with the memory that they take.
struct Status {
    head: Value,
    lists: Vec<(&'static str, Vec<RecordBatch>)>,
    held: QueryReservation,
}

impl Status {
    /// Writes the response a few entries at a time, since names may be of any length.
    fn pieces(self) -> impl Iterator<Item = Bytes> + Send + 'static {
        let Self { head, lists, held } = self;
        let mut begin = begin_success();
        begin.extend_from_slice(format!("{{\"headStats\":{head}").as_bytes());
        let mut end = b"}".to_vec();
        close_success(&mut end, &Envelope::default());
        let lists = lists.into_iter().flat_map(|(name, batches)| list_pieces(name, batches));
        once(Bytes::from(begin)).chain(lists).chain(once(Bytes::from(end))).inspect(move |_| {
            let _counted = &held;
        })
    }
}

/// Entries of a list that are written at once.
const PIECE_ROWS: usize = 16;

fn list_pieces(name: &'static str, batches: Vec<RecordBatch>) -> impl Iterator<Item = Bytes> + Send + 'static {
    let pieces = batches.into_iter().flat_map(|batch| {
        let rows = batch.num_rows();
        (0..rows).step_by(PIECE_ROWS).map(move |from| batch.slice(from, PIECE_ROWS.min(rows - from)))
    });
    let mut comma = "";
    let entries = pieces.map(move |piece| {
        let mut out = String::new();
        for entry in list(&piece) {
            out.push_str(std::mem::replace(&mut comma, ","));
            out.push_str(&entry.to_string());
        }
        Bytes::from(out)
    });
    let begin = format!(",\"{name}\":[");
    once(Bytes::from(begin)).chain(entries).chain(once(Bytes::from_static(b"]")))
}

fn list(batch: &RecordBatch) -> impl Iterator<Item = Value> {
    let names = batch.column(0).as_string::<i32>();
    let counts = batch.column(1).as_primitive::<UInt64Type>();
    (0..batch.num_rows()).map(move |row| json!({"name": names.value(row), "value": counts.value(row)}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let read =
            |query: &str| limit(&Params::read(&http::Method::GET, &http::HeaderMap::new(), Some(query), b"").unwrap());
        assert_eq!((read("").unwrap(), read("limit=10000").unwrap()), (10, 10_000));
        let refused = |query: &str| read(query).unwrap_err().message;
        assert_eq!(refused("limit=0"), "limit must be a positive number");
        assert_eq!(refused("limit=x"), "limit must be a positive number");
        assert_eq!(refused("limit=10001"), "limit must not exceed 10000");
    }

    #[test]
    fn bounds_of_what_is_there() {
        let mut head = Head::nothing();
        assert_eq!(head, Head { chunks: 0, min_ms: i64::MAX, max_ms: i64::MIN });
        head.add(3, None);
        assert_eq!((head.chunks, head.min_ms), (3, i64::MAX), "series without samples have no time");
        head.add(2, Some(MillisRange::new(-5, 10)));
        head.add(1, Some(MillisRange::new(0, 5)));
        assert_eq!(head, Head { chunks: 6, min_ms: -5, max_ms: 10 });
    }

    fn batch(from: u64, rows: usize) -> RecordBatch {
        let names: arrow::array::StringArray = (0..rows as u64).map(|n| Some(format!("n\"{}", from + n))).collect();
        let counts: arrow::array::UInt64Array = (0..rows as u64).map(|n| from + n).collect();
        let columns: [(&str, arrow::array::ArrayRef); 2] = [("name", Arc::new(names)), ("value", Arc::new(counts))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// Would fail if a comma were missing or extra between pieces or batches.
    #[test]
    fn lists_are_whole_in_pieces() {
        for sizes in [vec![], vec![0], vec![1], vec![16], vec![17], vec![33, 0, 1], vec![0, 16, 16]] {
            let (mut batches, mut from) = (Vec::new(), 0);
            for rows in &sizes {
                batches.push(batch(from, *rows));
                from += *rows as u64;
            }
            let pieces: Vec<u8> = list_pieces("list", batches).flatten().collect();
            let text = String::from_utf8(pieces).unwrap();
            let whole: Value = serde_json::from_str(&format!("{{\"a\":0{text}}}")).unwrap();
            let expected: Vec<Value> = (0..from).map(|n| json!({"name": format!("n\"{n}"), "value": n})).collect();
            assert_eq!(whole["list"], json!(expected), "{sizes:?}");
        }
    }
}
