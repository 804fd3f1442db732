//! Exemplars of the series that a query is about.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`queryExemplars`).

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use quiver_promql::query::TREE_BYTES;
use quiver_promql::selectors::selectors;
use quiver_query::from_datafusion;
use quiver_types::source::SeriesExemplars;
use quiver_types::{Error, ErrorKind, Matcher, MillisRange, Result};

use crate::encode::prometheus::{
    Envelope, Notation, begin_success, error_response, finish_success, write_quoted, write_time,
};
use crate::labels_api::labels_json;
use crate::metrics::phases::Language;
use crate::metrics_api::query_error;
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
        let (start, end) = (params.time("start")?.unwrap_or(i64::MIN), params.time("end")?.unwrap_or(i64::MAX));
        if end < start {
            return Err(Error::invalid("end timestamp must not be before start timestamp"));
        }
        let text = params.get("query").unwrap_or_default().to_owned();
        let ctx = query_context(&state, state.asked(Language::Series, ""), state.limits());
        let (promql, source, inner) = (Arc::clone(&state.promql), Arc::clone(&state.source), ctx.clone());
        let _text = promql.reserve_text(&text, TREE_BYTES, &ctx)?;
        let range = MillisRange::new(start, end);
        let work = async move {
            let expr = promql.parse(&text, &inner).map_err(query_error)?;
            let wanted: Vec<Vec<Matcher>> = selectors(&expr).into_iter().map(<[Matcher]>::to_vec).collect();
            if wanted.is_empty() {
                return Ok(None);
            }
            source.snapshot().exemplars(&inner.access, &wanted, range, &inner.stats).await.map(Some)
        };
        let Some(found) = state.engine.run(&ctx, work).await? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        let memory = state.engine.reservation("exemplars", &ctx);
        let grow = |bytes| memory.try_resize(bytes).map_err(from_datafusion);
        write(&found, &Envelope::lacking(&ctx), state.settings.answer_bytes_max, grow)
    };
    looked_up.await.unwrap_or_else(|e| error_response(&e, route))
}

/// Writes the answer; `grow` is asked for the bytes that it has next.
fn write(
    found: &[SeriesExemplars],
    envelope: &Envelope,
    bytes_max: usize,
    grow: impl Fn(usize) -> Result<()>,
) -> Result<Response> {
    let mut out = begin_success();
    out.push(b'[');
    for (i, series) in found.iter().filter(|s| !s.exemplars.is_empty()).enumerate() {
        // The text of an exemplar is longer than its labels by names, quotes and numbers; the answer grows by doubling.
        let labels: usize = series.exemplars.iter().map(|e| e.2.canonical().len() + TEXT_BYTES).sum();
        grow(2 * (out.len() + labels + series.labels.canonical().len() + TEXT_BYTES))?;
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"seriesLabels\":");
        out.extend_from_slice(labels_json(series.labels.iter()).as_bytes());
        out.extend_from_slice(b",\"exemplars\":[");
        for (i, (ts, value, labels)) in series.exemplars.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"labels\":");
            out.extend_from_slice(labels_json(labels.iter()).as_bytes());
            out.extend_from_slice(b",\"value\":");
            write_quoted(&mut out, *value, Notation::Sample);
            out.extend_from_slice(b",\"timestamp\":");
            write_time(&mut out, *ts);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        if out.len() > bytes_max {
            let text = format!("the answer is larger than the limit of {bytes_max} bytes");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
    }
    out.push(b']');
    Ok(finish_success(out, envelope))
}
