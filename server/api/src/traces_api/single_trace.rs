//! `/traces/{traceId}` and what is derived from one trace.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use quiver_traces::export::internal::write_trace;
use quiver_traces::{Trace, TraceError, Tree, summarize};
use quiver_types::spans::hex;
use serde_json::Value;

use super::data::Data;
use super::export::{selection, send};
use super::groupings::group_by;
use super::problem::derived;
use super::{Call, problem, rows};
use crate::state::AppState;

const ROUTE: &str = "/traces/{id}";

/// Looks up a trace and sends what a function makes of it.
async fn with(
    state: Arc<AppState>,
    id: &str,
    request: Request,
    f: impl FnOnce(&Call, &Trace) -> Result<Value, TraceError>,
) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, id)?;
        let window = selection.window;
        let trace = call.trace(selection).await?;
        let data = f(&call, &trace)?;
        call.answer(data, Some(window), None)
    };
    run.await.unwrap_or_else(|e: TraceError| derived(&e, ROUTE))
}

/// The internal JSON format; with `download=1` as a file, without the envelope.
pub(super) async fn trace(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let window = Some(selection.window);
        let download = call.params.switch("download")?.unwrap_or(false);
        let trace = call.state.engines.traces.trace(&call.ctx, selection).await?;
        let name = download.then(|| format!("trace-{}.json", hex(&trace.id)));
        let meta = call.meta(window, None);
        send(
            &call,
            trace,
            move |trace, w| {
                if download {
                    return write_trace(trace, window, w);
                }
                w.object(|w| {
                    write_trace(trace, window, w.key("data"));
                    w.key("meta").raw(&meta);
                });
            },
            name,
        )
    };
    run.await.unwrap_or_else(|e: TraceError| problem(&e, ROUTE))
}

pub(super) async fn summary(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    with(state, &id, request, |_, trace| summarize(trace).map(|s| rows::summary(&s)).ok_or(TraceError::NotFound)).await
}

pub(super) async fn statistics(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let window = selection.window;
        let trace = call.trace(selection).await?;
        let by = group_by(call.params.all("groupBy"))?;
        let groups = call.state.engines.traces.statistics(&call.ctx, trace, by).await?;
        call.answer_data(Data::rows(groups, rows::group_figures), Some(window), None)
    };
    run.await.unwrap_or_else(|e: TraceError| derived(&e, ROUTE))
}

pub(super) async fn critical_path(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let window = selection.window;
        let trace = call.trace(selection).await?;
        let meta = call.meta(Some(window), None);
        // There may be as many parts as spans.
        call.written(trace.spans.len(), move |w| {
            w.object(|w| {
                w.key("data").array(|w| {
                    for part in Tree::of(&trace).critical_path(&trace) {
                        if w.is_closed() {
                            return;
                        }
                        w.object(|w| {
                            w.key("spanId").id(&trace.spans[part.span].span_id);
                            w.key("from").quoted(part.from);
                            w.key("to").quoted(part.to);
                        });
                    }
                });
                w.key("meta").raw(&meta);
            });
        })
    };
    run.await.unwrap_or_else(|e: TraceError| derived(&e, ROUTE))
}

pub(super) async fn similar(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let selection = selection(&call, &id)?;
        let limit = call.params.number("limit", 1..=100)?.unwrap_or(10) as usize;
        let found = call.state.engines.traces.similar(&call.ctx, selection, limit, call.now).await?;
        call.answer(rows::similar(&found), None, None)
    };
    run.await.unwrap_or_else(|e: TraceError| derived(&e, ROUTE))
}
