//! `query` and `tail`: rows as JSON lines, sent as they are found.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http::{HeaderValue, header};
use quiver_auth::Identity;
use quiver_logsql::request::{duration_param, followed, with_limit};
use quiver_logsql::{QueryScope, RowStream, Rows};
use quiver_query::{Phase, QueryContext, WITHDRAWN};
use quiver_types::{Access, Domain, Error, ErrorKind, Result};
use tracing::{Instrument, Span};

use super::Ask;
use crate::encode::ndjson::push_rows;
use crate::error::{log, plain_error};
use crate::params::invalid;
use crate::state::AppState;

/// A piece of a response.
type Chunk = Result<Bytes, std::io::Error>;

pub(super) async fn query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    run(&state, request).await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/query"))
}

async fn run(state: &AppState, request: Request) -> Result<Response> {
    let ask = Ask::of(state, request).await?;
    let query = match (ask.number("offset")?, ask.number("limit")?) {
        (0, 0) => ask.query.clone(),
        (_, 0) => return Err(invalid("offset", "goes with `limit`")),
        (offset, limit) => with_limit(ask.query.clone(), offset, limit),
    };
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let mut rows = Pieces::of(state.logsql.stream(&query, &ask.scope, &ask.ctx), ask.ctx.clone());
    // An error before the first row still gets its status code.
    let first = rows.next().await?;
    let span = Span::current();
    // The query's memory is held while its rows are sent.
    let rest = unfold((rows, ask), move |(mut rows, ask)| {
        let next = async move {
            match rows.next().await {
                Ok(Some(piece)) => Some((Ok(piece), (rows, ask))),
                Ok(None) => None,
                Err(error) => {
                    log(&error, "/select/logsql/query");
                    Some((Err(std::io::Error::other(error.message)), (rows, ask)))
                }
            }
        };
        next.instrument(span.clone())
    });
    let all = futures::stream::iter(first.map(Ok)).chain(rest);
    Ok(lines(all.boxed()))
}

/// Bytes of a piece; a single row may be larger.
const PIECE_BYTES: usize = 64 * 1024;

/// Formats rows a piece at a time: a slow client holds the rows as they were found, and one piece.
#[derive(Debug)]
struct Pieces {
    stream: RowStream,
    /// Rows that were found, and how many of them are written.
    found: Option<(Rows, usize)>,
    /// Rows that are written at once.
    step: usize,
    ctx: QueryContext,
}

impl Pieces {
    fn of(stream: RowStream, ctx: QueryContext) -> Self {
        Self { stream, found: None, step: 16, ctx }
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut out = String::new();
        loop {
            let (rows, written) = match self.found.take() {
                Some(found) => found,
                None => match self.stream.next().await {
                    Some(rows) => (rows?, 0),
                    None => return Ok((!out.is_empty()).then(|| out.into())),
                },
            };
            let (from, len, began) = (out.len(), self.step.min(rows.len() - written), Instant::now());
            push_rows(&mut out, &rows.slice(written, len))?;
            self.ctx.query().spent(Phase::Encode, began.elapsed());
            // As many as make about a quarter of a piece.
            let row_bytes = ((out.len() - from) / len.max(1)).max(1);
            self.step = (PIECE_BYTES / 4 / row_bytes).clamp(1, 1024);
            let whole = written + len == rows.len();
            if !whole {
                self.found = Some((rows, written + len));
            }
            // Rows are sent before more are waited for.
            if out.len() >= PIECE_BYTES || whole && !out.is_empty() {
                return Ok(Some(out.into()));
            }
        }
    }
}

fn lines(chunks: BoxStream<'static, Chunk>) -> Response {
    let mut response = Response::new(Body::from_stream(chunks.fuse()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/stream+json"));
    response
}

/// How late a row may arrive, after its own time, and still be shown.
const OFFSET: &str = "5s";
/// How far back a tail begins (VictoriaLogs `ProcessLiveTailRequest`).
const START_OFFSET: &str = "5s";

pub(super) async fn tail(State(state): State<Arc<AppState>>, request: Request) -> Response {
    follow(&state, request).await.unwrap_or_else(|e| plain_error(&e, "/select/logsql/tail"))
}

/// A query that is repeated for new rows.
struct Tail {
    state: Arc<AppState>,
    query: quiver_logsql::ast::Query,
    scope: QueryScope,
    ctx: QueryContext,
    identity: Arc<Identity>,
    refresh: Duration,
    offset_ns: i64,
    next_ns: i64,
    wait: bool,
    /// The rows being read, the end of their time range, and the caller's access when reading began.
    rows: Option<(Pieces, i64, Access)>,
}

async fn follow(state: &Arc<AppState>, request: Request) -> Result<Response> {
    let ask = Ask::read(state, request, true).await?;
    let query = followed(ask.query.clone())?;
    let (refresh_ns, _) = ask.duration("refresh_interval", "1s")?;
    let (offset_ns, _) = ask.duration("offset", OFFSET)?;
    let (back_ns, _) = ask.duration("start_offset", START_OFFSET)?;
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
        identity: state.identity(),
        refresh: Duration::from_nanos(refresh_ns as u64),
        offset_ns,
        next_ns: now_ns.saturating_sub(back_ns).saturating_sub(offset_ns),
        wait: false,
        rows: None,
    };
    let span = Span::current();
    let chunks = unfold(Some(tail), move |tail| {
        let next = async move {
            let mut tail = tail.filter(|tail| !tail.stops())?;
            match tail.next().await {
                Ok(chunk) => Some((Ok(chunk), Some(tail))),
                // A response that is broken off cannot be mistaken for a complete one.
                Err(error) => {
                    log(&error, "/select/logsql/tail");
                    Some((Err(std::io::Error::other(error.message)), None))
                }
            }
        };
        next.instrument(span.clone())
    });
    Ok(lines(chunks.boxed()))
}

impl Tail {
    /// Waits for new rows; an empty line keeps the connection alive.
    async fn next(&mut self) -> Result<Bytes> {
        let (mut pieces, end_ns, access) = match self.rows.take() {
            // A client may take long to read the rows of one query, so its rights are checked again.
            Some(rows) if self.state.access_by_now(&self.identity, Domain::Logs)? == rows.2 => rows,
            Some(_) => return Err(Error::new(ErrorKind::Cancelled, WITHDRAWN)),
            None => {
                if std::mem::replace(&mut self.wait, true) {
                    let ctx = self.ctx.again();
                    ctx.query().enter(Phase::Queue);
                    let pause = async {
                        tokio::time::sleep(self.refresh).await;
                        Ok::<_, Error>(())
                    };
                    ctx.or_cancelled("following", pause).await?;
                }
                let now_ns = self.state.clock.now_ms() * 1_000_000;
                let end_ns = now_ns.saturating_sub(self.offset_ns);
                if end_ns < self.next_ns {
                    return Ok(Bytes::from_static(b"\n"));
                }
                let (start_ns, extra) = (Some(self.next_ns), self.scope.extra.clone());
                let scope = QueryScope { now_ns, start_ns, end_ns: Some(end_ns), extra };
                // Rights that were withdrawn meanwhile take effect here.
                let access = self.state.access_by_now(&self.identity, Domain::Logs)?;
                let ctx = self.ctx.again_as(access.clone());
                (Pieces::of(self.state.logsql.stream(&self.query, &scope, &ctx), ctx), end_ns, access)
            }
        };
        if let Some(piece) = pieces.next().await? {
            self.rows = Some((pieces, end_ns, access));
            return Ok(piece);
        }
        self.next_ns = end_ns.saturating_add(1);
        Ok(Bytes::from_static(b"\n"))
    }

    fn stops(&self) -> bool {
        self.state.stopping.load(Relaxed)
    }
}
