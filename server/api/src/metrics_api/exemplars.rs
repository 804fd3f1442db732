//! Exemplars of the series that a query is about.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`queryExemplars`).

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use http::StatusCode;
use quiver_promql::query::TREE_BYTES;
use quiver_promql::selectors::selectors;
use quiver_query::from_datafusion;
use quiver_query::index::{self, IndexSource};
use quiver_types::{Error, ErrorKind, Matcher, MillisRange, Result};

use super::labels::explain;
use super::query_error;
use crate::encode::prometheus::{
    Envelope, Notation, begin_success, error_response, finish_success, write_quoted, write_time,
};
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::partial::query_context;
use crate::state::AppState;

/// What stands around the labels of an exemplar.
const TEXT_BYTES: usize = 192;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/v1/query_exemplars", get(query_exemplars).post(query_exemplars))
}

async fn query_exemplars(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let route = "/api/v1/query_exemplars";
    let looked_up = async {
        let params = Params::of(&state, request).await?;
        explain(&params);
        let (start, end) = (params.time("start")?.unwrap_or(i64::MIN), params.time("end")?.unwrap_or(i64::MAX));
        if end < start {
            return Err(Error::invalid("end timestamp must not be before start timestamp"));
        }
        let text = params.get("query").unwrap_or_default().to_owned();
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let (promql, inner) = (Arc::clone(&state.promql), ctx.clone());
        let _text = promql.reserve_text(&text, TREE_BYTES, &ctx)?;
        let source = IndexSource::new(state.source.snapshot(), &ctx);
        let range = MillisRange::new(start, end);
        let (engine, bytes_max) = (Arc::clone(&state.engine), state.settings.answer_bytes_max);
        let work = async move {
            let expr = promql.parse(&text, &inner).map_err(query_error)?;
            let wanted: Vec<Vec<Matcher>> = selectors(&expr).into_iter().map(<[Matcher]>::to_vec).collect();
            if wanted.is_empty() {
                return Ok(None);
            }
            let plan = index::exemplars(&source, wanted, range)?;
            let mut answer = Answer::begin(engine.reservation("exemplars", &inner), bytes_max);
            let mut rows = engine.execute(&plan, &inner).await?;
            while let Some(batch) = rows.next().await {
                answer.add(&batch.map_err(from_datafusion)?)?;
            }
            Ok(Some(answer))
        };
        let Some(answer) = state.engine.run(&ctx, work).await? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        Ok(answer.finish(&Envelope::lacking(&ctx)))
    };
    looked_up.await.unwrap_or_else(|e| error_response(&e, route))
}

/// The text of an answer, within the memory of its query.
struct Answer {
    out: Vec<u8>,
    /// Number of the series whose exemplars stand last.
    series: Option<u64>,
    memory: MemoryReservation,
    bytes_max: usize,
}

impl Answer {
    fn begin(memory: MemoryReservation, bytes_max: usize) -> Self {
        let mut out = begin_success();
        out.push(b'[');
        Self { out, series: None, memory, bytes_max }
    }

    /// Adds rows of the plan; those of a series come one after the other.
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let numbers = batch.column(0).as_primitive::<UInt64Type>();
        let (series, labels) = (batch.column(1).as_string::<i32>(), batch.column(4).as_string::<i32>());
        let times = batch.column(2).as_primitive::<Int64Type>();
        let values = batch.column(3).as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            // The answer grows by doubling.
            let next = series.value(row).len() + labels.value(row).len() + TEXT_BYTES;
            self.memory.try_resize(2 * (self.out.len() + next)).map_err(from_datafusion)?;
            let out = &mut self.out;
            if self.series == Some(numbers.value(row)) {
                out.push(b',');
            } else {
                out.extend_from_slice(if self.series.is_some() { b"]}," } else { b"" });
                out.extend_from_slice(b"{\"seriesLabels\":");
                out.extend_from_slice(series.value(row).as_bytes());
                out.extend_from_slice(b",\"exemplars\":[");
                self.series = Some(numbers.value(row));
            }
            out.extend_from_slice(b"{\"labels\":");
            out.extend_from_slice(labels.value(row).as_bytes());
            out.extend_from_slice(b",\"value\":");
            write_quoted(out, values.value(row), Notation::Sample);
            out.extend_from_slice(b",\"timestamp\":");
            write_time(out, times.value(row));
            out.push(b'}');
            if out.len() > self.bytes_max {
                let text = format!("the answer is larger than the limit of {} bytes", self.bytes_max);
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
        }
        Ok(())
    }

    fn finish(mut self, envelope: &Envelope) -> Response {
        self.out.extend_from_slice(if self.series.is_some() { b"]}]" } else { b"]" });
        finish_success(self.out, envelope)
    }
}
