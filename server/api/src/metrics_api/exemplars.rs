//! Exemplars of the series that a query selects.
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
use quiver_promql::PromqlError;
use quiver_promql::query::TREE_BYTES;
use quiver_promql::selectors::selectors;
use quiver_query::index::{self, IndexSource};
use quiver_query::{Rules, from_datafusion};
use quiver_types::{Error, ErrorKind, Matcher, MillisRange, Result};

use super::labels::explain;
use super::query_error;
use crate::encode::prometheus::{
    Envelope, Notation, begin_success, error_response, finish_success, write_quoted, write_time,
};
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::partial_responses::query_context;
use crate::state::AppState;

/// Bytes of JSON around the labels of an exemplar.
const TEXT_BYTES: usize = 192;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/v1/query_exemplars", get(boxed(query_exemplars)).post(boxed(query_exemplars)))
}

async fn query_exemplars(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let route = "/api/v1/query_exemplars";
    let looked_up = async {
        let params = Params::of(&state, request).await?;
        explain(&params)?;
        let (start, end) = (params.time("start")?.unwrap_or(i64::MIN), params.time("end")?.unwrap_or(i64::MAX));
        if end < start {
            return Err(Error::invalid("end timestamp must not be before start timestamp"));
        }
        let text = params.get("query").unwrap_or_default().to_owned();
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let (promql, inner) = (Arc::clone(&state.engines.promql), ctx.clone());
        let _text = promql.reserve_text(&text, TREE_BYTES, &ctx)?;
        let source = IndexSource::new(state.engines.series.snapshot(), &ctx);
        let range = MillisRange::new(start, end);
        let (engine, bytes_max) = (Arc::clone(&state.engines.query), state.settings.answer_bytes_max);
        let work = async move {
            // Unlike the errors of other endpoints, those of this one do not name the parameter.
            let expr = promql.parse(&text, &inner).map_err(|e| match e {
                PromqlError::Parse(e) => Error::invalid(e.to_string()),
                other @ PromqlError::Evaluation(_) => query_error(other),
            })?;
            let wanted: Vec<Vec<Matcher>> = selectors(&expr).into_iter().map(<[Matcher]>::to_vec).collect();
            if wanted.is_empty() {
                return Ok(None);
            }
            let plan = index::exemplars(&source, wanted, range)?;
            let mut answer = Answer::begin(engine.reservation("exemplars", &inner), bytes_max);
            let mut rows = engine.execute(&plan, &inner, Rules::Direct).await?;
            while let Some(batch) = rows.next().await {
                answer.add(&batch.map_err(from_datafusion)?)?;
            }
            Ok(Some(answer))
        };
        let Some(answer) = state.engines.query.run(&ctx, work).await? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        Ok(answer.finish(&Envelope::lacking(&ctx)))
    };
    looked_up.await.unwrap_or_else(|e| error_response(&e, route))
}

/// The text of the response, accounted to the memory of its query.
struct Answer {
    out: Vec<u8>,
    /// Number of the series whose exemplars were written last.
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

    /// Adds rows of the plan; rows of one series are adjacent.
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let numbers = batch.column(0).as_primitive::<UInt64Type>();
        let (series, labels) = (batch.column(1).as_string::<i32>(), batch.column(4).as_string::<i32>());
        let times = batch.column(2).as_primitive::<Int64Type>();
        let values = batch.column(3).as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            // A buffer grows by doubling.
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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// Rows: number and labels of a series, time, value, labels of the exemplar.
    fn batch(rows: &[(u64, &str, i64, f64, &str)]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<UInt64Array>());
        let series: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringArray>());
        let times: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>());
        let values: ArrayRef = Arc::new(rows.iter().map(|row| row.3).collect::<Float64Array>());
        let labels: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.4)).collect::<StringArray>());
        let columns = [("number", numbers), ("series", series), ("time", times), ("value", values), ("labels", labels)];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    fn answer(memory_bytes: usize, bytes_max: usize) -> Answer {
        let engine =
            quiver_query::QueryEngine::new(&quiver_query::EngineSettings::small(memory_bytes)).expect("an engine");
        let ctx = quiver_query::QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        Answer::begin(engine.reservation("exemplars", &ctx), bytes_max)
    }

    async fn data(answer: Answer) -> Value {
        let body = answer.finish(&Envelope::default()).into_body().collect().await.expect("a body").to_bytes();
        let whole: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(whole["status"], "success");
        whole["data"].clone()
    }

    /// A series may continue in the next batch, and is written anew if another one came in between.
    #[tokio::test]
    async fn exemplars_stand_with_their_series() {
        let (a, b) = (r#"{"job":"a"}"#, r#"{"job":"b"}"#);
        let mut shown = answer(8 << 20, 10_000);
        shown.add(&batch(&[(1, a, 1500, 2.5, "{}"), (1, a, -1, f64::NAN, r#"{"trace_id":"x"}"#)])).expect("room");
        shown.add(&batch(&[])).expect("room");
        shown.add(&batch(&[(1, a, 2000, 1e21, "{}"), (2, b, 0, f64::INFINITY, "{}")])).expect("room");
        let expected = json!([
            {"seriesLabels": {"job": "a"}, "exemplars": [
                {"labels": {}, "value": "2.5", "timestamp": 1.5},
                {"labels": {"trace_id": "x"}, "value": "NaN", "timestamp": -0.001},
                {"labels": {}, "value": "1e+21", "timestamp": 2},
            ]},
            {"seriesLabels": {"job": "b"}, "exemplars": [{"labels": {}, "value": "+Inf", "timestamp": 0}]},
        ]);
        assert_eq!(data(shown).await, expected);
        assert_eq!(data(answer(8 << 20, 10_000)).await, json!([]), "of no series");
    }

    #[test]
    fn answers_are_bounded() {
        let rows = || batch(&[(1, "{}", 0, 1.0, "{}")]);
        let mut small = answer(8 << 20, 60);
        let error = small.add(&rows()).expect_err("too large");
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::LimitExceeded, "the answer is larger than the limit of 60 bytes")
        );
        // A text for which there is no memory is refused before it is copied.
        let mut poor = answer(1 << 20, usize::MAX);
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
        assert_eq!(
            poor.add(&batch(&[(1, long.as_str(), 0, 1.0, "{}")])).expect_err("no room").kind,
            ErrorKind::LimitExceeded
        );
        assert!(poor.out.len() < 100 && poor.series.is_none(), "{} bytes", poor.out.len());
    }
}
