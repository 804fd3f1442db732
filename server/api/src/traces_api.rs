//! Traces: the three exports, and the `/traces` API (`traces-api` sections 2 and 3).

mod data;
mod export;
mod groupings;
mod lists;
mod problem;
mod related;
mod rows;
mod search;
mod single_trace;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::response::Response;
use axum::routing::get;
use http::Method;
use quiver_query::QueryContext;
use quiver_traces::condition::filter_of;
use quiver_traces::{JsonWriter, ParamError, ReaderClosed, Selection, Trace, TraceError};
use quiver_types::spans::SpanFilter;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use problem::problem;

use crate::body_memory::read_unpacked;
use crate::encode::body_pieces::Text;
use crate::encode::json::json_body;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::partial_responses::query_context;
use crate::segments::{SegmentFilter, of_request};
use crate::state::AppState;
use crate::traces_params::TraceParams;
use crate::{explain_plans, parsed_bodies, unknown_parameters};

/// Paths of the product's own API of traces.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new()
        .route("/platform-api/traces/{id}/{format}", get(boxed(export::export_trace)))
        // A look-up without an id is told what is wrong, not that there is no such path.
        .route("/platform-api/traces//{format}", get(boxed(export::without_id)));
    for (path, call) in lists::PATHS {
        let call = *call;
        let handler = move |state: State<Arc<AppState>>, params: RawPathParams, request: Request| {
            lists::answer_list(call, state, params, request)
        };
        router = router.route(path, get(boxed(handler)).post(boxed(handler)));
    }
    router
        .route("/traces/{id}", get(boxed(single_trace::trace)))
        .route("/traces/{id}/summary", get(boxed(single_trace::summary)))
        .route("/traces/{id}/statistics", get(boxed(single_trace::statistics)))
        .route("/traces/{id}/critical-path", get(boxed(single_trace::critical_path)))
        .route("/traces/{id}/similar", get(boxed(single_trace::similar)))
        .route("/traces/{id}/logs", get(boxed(related::logs)))
        .route("/traces/{id}/exemplars", get(boxed(related::exemplars)))
}

/// One call: who asks, what for, since when.
pub(crate) struct Call {
    pub(crate) state: Arc<AppState>,
    pub(crate) ctx: QueryContext,
    pub(crate) params: TraceParams,
    pub(crate) now: i64,
    began: Instant,
}

impl Call {
    /// Reads the parameters of a request; a POST may bring a JSON object.
    pub(crate) async fn of(state: Arc<AppState>, request: Request) -> Result<Self, TraceError> {
        let (head, body) = request.into_parts();
        let mut params = TraceParams::of_query(head.uri.query())?;
        if head.method == Method::POST {
            let body =
                read_unpacked(&state.capacity.bodies, &head.headers, body, state.settings.form_bytes_max).await?;
            if !body.is_empty() {
                let tree = parsed_bodies::hold(&state.capacity.bodies, &body)?;
                let given = TraceParams::of_json(&body)?;
                drop(tree);
                let route = head.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
                if let Some(name) = unknown_parameters::unknown(route, given.pairs().map(|(name, _)| name)) {
                    return Err(unknown_parameters::error(route, name).into());
                }
                params.extend(given);
                explain(&params)?;
                let text = format!("{} {}", head.uri, String::from_utf8_lossy(&body));
                let ctx = query_context(&state, state.asked(Language::Traces, &text), state.limits());
                return Ok(Self::begun(ctx, state, params));
            }
        }
        explain(&params)?;
        Ok(Self::with(state, params))
    }

    /// Makes a call of parameters.
    pub(crate) fn with(state: Arc<AppState>, params: TraceParams) -> Self {
        Self::named(state, params, "")
    }

    /// The same, shown in the list of running queries as this text; without one, as its request.
    pub(crate) fn named(state: Arc<AppState>, params: TraceParams, text: &str) -> Self {
        Self::begun(query_context(&state, state.asked(Language::Traces, text), state.limits()), state, params)
    }

    fn begun(ctx: QueryContext, state: Arc<AppState>, params: TraceParams) -> Self {
        let now = state.clock.now_ms().saturating_mul(1_000_000);
        Self { state, ctx, params, now, began: Instant::now() }
    }

    /// Looks a trace up. That there are spans, all of them hidden, is told by `/traces/{traceId}` and the exports
    /// alone; everywhere else it is as if they were not there (`traces-api` 2.5).
    pub(crate) async fn trace(&self, selection: Selection) -> Result<Trace, TraceError> {
        let unless_hidden = |e| if matches!(e, TraceError::Forbidden) { TraceError::NotFound } else { e };
        self.state.engines.traces.trace(&self.ctx, selection).await.map_err(unless_hidden)
    }

    /// The filters of the segments that the request names.
    pub(crate) fn segments(&self) -> Result<Vec<SpanFilter>, TraceError> {
        let filters = of_request(&self.state, self.params.pairs(), "spans")?.into_iter().map(|one| match one {
            SegmentFilter::To(condition) => filter_of(&condition),
            SegmentFilter::ToNothing => Ok(SpanFilter::None),
        });
        Ok(filters.collect::<quiver_types::Result<_>>()?)
    }

    /// The bytes read so far, without those that the caller may not know of.
    pub(crate) fn scanned_bytes(&self) -> u64 {
        let told = self.ctx.stats.told();
        told.iter().filter(|(name, _)| ["bytes_read", "index_bytes_read"].contains(name)).map(|(_, n)| n).sum()
    }

    /// Says what an answer is of.
    pub(crate) fn meta(&self, range: Option<(i64, i64)>, cursor: Option<String>) -> Value {
        let time = |t: i64| if matches!(t, i64::MIN | i64::MAX) { Value::Null } else { Value::from(t.to_string()) };
        let warnings = self.ctx.stats.left_out.texts();
        let mut meta = json!({
            "from": range.map_or(Value::Null, |r| time(r.0)),
            "to": range.map_or(Value::Null, |r| time(r.1)),
            "partial": !warnings.is_empty(),
            "scannedBytes": self.scanned_bytes(),
            "elapsedMs": self.began.elapsed().as_secs_f64() * 1e3,
        });
        if !warnings.is_empty() {
            meta["warnings"] = warnings.into();
        }
        if let Some(cursor) = cursor {
            meta["nextCursor"] = cursor.into();
        }
        meta
    }

    /// Wraps an answer.
    pub(crate) fn answer(
        &self,
        data: Value,
        range: Option<(i64, i64)>,
        cursor: Option<String>,
    ) -> Result<Response, TraceError> {
        self.json(&json!({"data": data, "meta": self.meta(range, cursor)}))
    }

    /// Answers with JSON that may be long: its text counts in the query's memory until it is sent.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<Response, TraceError> {
        let mut text = self.text();
        // What went wrong is told by the body.
        let _ = serde_json::to_writer(&mut text, value);
        Ok(json_body(text.body()?))
    }

    /// Begins the text of an answer.
    pub(crate) fn text(&self) -> Text {
        Text::new(&self.state.engines.query, &self.ctx)
    }

    /// Answers with what a function writes of so many spans: while it is read where they are many and a thread is free
    /// for it, at once where not.
    pub(crate) fn written(
        &self,
        spans: usize,
        write: impl FnOnce(&mut JsonWriter<'_>) + Send + 'static,
    ) -> Result<Response, TraceError> {
        self.written_by(spans, Box::new(write))
    }

    fn written_by(&self, spans: usize, write: SpanWriter) -> Result<Response, TraceError> {
        let place = if spans > STREAM_SPANS {
            Arc::clone(&self.state.capacity.places.writers).try_acquire_owned().ok()
        } else {
            None
        };
        let Some(place) = place else { return Ok(json_body(self.text().write(write).body()?)) };
        let (to, pieces) = tokio::sync::mpsc::channel::<Vec<u8>>(PIECES_WAITING);
        // The spans count in the query's memory as long as its context is there.
        let ctx = self.ctx.clone();
        tokio::task::spawn_blocking(move || {
            let mut writer = JsonWriter::pieces(|piece| to.blocking_send(piece).map_err(|_| ReaderClosed));
            write(&mut writer);
            // A client that went away needs no rest.
            let _ = writer.finish();
            drop((ctx, place));
        });
        let pieces = futures::stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), pieces))
        });
        Ok(json_body(Body::from_stream(pieces)))
    }
}

/// Reads `explain`: none, the plans, or the plans with what they did.
fn explain(params: &TraceParams) -> Result<(), TraceError> {
    if let Some(explain) = explain_plans::read(params.one("explain")?).map_err(|why| ParamError::new("explain", why))? {
        explain_plans::ask(explain);
    }
    Ok(())
}

/// Writes what was read; boxed, so that tasks are compiled once for all answers.
type SpanWriter = Box<dyn FnOnce(&mut JsonWriter<'_>) + Send>;

/// Traces of more spans are written piece by piece while the client reads.
const STREAM_SPANS: usize = 2_000;
/// Pieces of them that wait for the client.
const PIECES_WAITING: usize = 4;
