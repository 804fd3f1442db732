//! `query` and `tail`: rows as they are found, as lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::{HeaderValue, header};
use quiver_logsql::request::{duration_param, followed, with_limit};
use quiver_logsql::{QueryScope, RowStream};
use quiver_query::QueryContext;
use quiver_types::{Error, Result};

use super::Ask;
use crate::encode::ndjson::push_rows;
use crate::error::{log, plain_error};
use crate::params::invalid;
use crate::state::AppState;

/// A piece of an answer.
type Chunk = Result<Bytes, std::io::Error>;

pub(super) async fn query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    run(&state, request).await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/query"))
}

async fn run(state: &AppState, request: Request) -> Result<Response> {
    let ask = Ask::of(state, request).await?;
    let query = match ask.number("limit")? {
        0 => ask.query.clone(),
        limit => with_limit(ask.query.clone(), limit),
    };
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let mut rows = state.logsql.stream(&query, &ask.scope, &ask.ctx);
    // An error before the first row still has a status.
    let first = next_chunk(&mut rows).await?;
    let rest = unfold(rows, |mut rows| async move {
        match next_chunk(&mut rows).await {
            Ok(Some(chunk)) => Some((Ok(chunk), rows)),
            Ok(None) => None,
            Err(error) => {
                log(&error, "/select/logsql/query");
                Some((Err(std::io::Error::other(error.message)), rows))
            }
        }
    });
    let all = futures::stream::iter(first.map(Ok)).chain(rest);
    Ok(lines(all.boxed()))
}

/// The next rows as text; none at the end.
async fn next_chunk(rows: &mut RowStream) -> Result<Option<Bytes>> {
    while let Some(found) = rows.next().await {
        let mut out = String::new();
        push_rows(&mut out, &found?)?;
        if !out.is_empty() {
            return Ok(Some(out.into()));
        }
    }
    Ok(None)
}

fn lines(chunks: BoxStream<'static, Chunk>) -> Response {
    let mut response = Response::new(Body::from_stream(chunks.fuse()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/stream+json"));
    response
}

/// How long after a row's time it may still arrive and be seen.
const OFFSET: &str = "5s";

pub(super) async fn tail(State(state): State<Arc<AppState>>, request: Request) -> Response {
    follow(&state, request).await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/tail"))
}

/// A query that is asked again and again for what came since.
struct Tail {
    state: Arc<AppState>,
    query: quiver_logsql::ast::Query,
    scope: QueryScope,
    ctx: QueryContext,
    refresh: Duration,
    offset_ns: i64,
    next_ns: i64,
    wait: bool,
}

async fn follow(state: &Arc<AppState>, request: Request) -> Result<Response> {
    let ask = Ask::of(state, request).await?;
    let query = followed(ask.query.clone())?;
    let (refresh_ns, _) = ask.duration("refresh_interval", "1s")?;
    let (offset_ns, _) = ask.duration("offset", OFFSET)?;
    let (back_ns, _) = ask.duration("start_offset", "0s")?;
    if refresh_ns <= 0 || duration_param("1h").is_some_and(|most| refresh_ns > most) {
        return Err(Error::invalid("`refresh_interval` must be greater than 0 and at most 1h"));
    }
    for (name, ns) in [("offset", offset_ns), ("start_offset", back_ns)] {
        if ns < 0 {
            return Err(invalid(name, "must not be less than 0"));
        }
    }
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let now_ns = state.clock.now_ms() * 1_000_000;
    let tail = Tail {
        state: Arc::clone(state),
        query,
        scope: ask.scope.clone(),
        ctx: ask.ctx.clone(),
        refresh: Duration::from_nanos(refresh_ns as u64),
        offset_ns,
        next_ns: now_ns.saturating_sub(back_ns).saturating_sub(offset_ns),
        wait: false,
    };
    let chunks = unfold(tail, |mut tail| async move {
        let chunk = tail.next().await;
        if let Err(error) = &chunk {
            log(error, "/select/logsql/tail");
            return None;
        }
        Some((chunk.map_err(|e| std::io::Error::other(e.message)), tail))
    });
    Ok(lines(chunks.boxed()))
}

impl Tail {
    /// Waits for new rows; an empty line keeps the connection known to be alive.
    async fn next(&mut self) -> Result<Bytes> {
        if std::mem::replace(&mut self.wait, true) {
            tokio::time::sleep(self.refresh).await;
        }
        let now_ns = self.state.clock.now_ms() * 1_000_000;
        let end_ns = now_ns.saturating_sub(self.offset_ns);
        if end_ns < self.next_ns {
            return Ok(Bytes::from_static(b"\n"));
        }
        let scope =
            QueryScope { now_ns, start_ns: Some(self.next_ns), end_ns: Some(end_ns), extra: self.scope.extra.clone() };
        let ctx = QueryContext::new(self.ctx.access.clone(), self.ctx.limits.clone());
        let mut out = String::new();
        let mut rows = self.state.logsql.stream(&self.query, &scope, &ctx);
        while let Some(found) = rows.next().await {
            push_rows(&mut out, &found?)?;
        }
        self.next_ns = end_ns.saturating_add(1);
        Ok(if out.is_empty() { Bytes::from_static(b"\n") } else { out.into() })
    }
}
