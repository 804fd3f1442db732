//! `query` and `tail`: rows as JSON lines, or as CSV, sent as they are found.

use std::collections::VecDeque;
use std::pin::pin;
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
use quiver_logsql::request_params::{TimeOrder, duration_param, followed, in_order, with_limit};
use quiver_logsql::{QueryScope, RowStream, Rows};
use quiver_query::{Phase, QueryContext, QueryReservation, WITHDRAWN};
use quiver_types::{Access, Domain, Error, ErrorKind, Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::csv::Columns;
use super::response;
use super::{Ask, TEXT_FACTOR, Texts};
use crate::encode::ndjson::push_rows;
use crate::error::log;
use crate::params::invalid;
use crate::state::AppState;

/// A piece of a response.
type Chunk = Result<Bytes, std::io::Error>;

pub(super) async fn query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    run(&state, request).await.unwrap_or_else(|e| response::error(&e, "/select/logsql/query"))
}

/// The order by time that the caller asks for.
fn time_order(ask: &Ask) -> Result<Option<TimeOrder>> {
    let read = |text: &str| {
        TimeOrder::read(text).ok_or_else(|| invalid("sort_direction", &format!("`{text}` is not one of asc, desc")))
    };
    ask.params.get("sort_direction").filter(|text| !text.is_empty()).map(read).transpose()
}

async fn run(state: &AppState, request: Request) -> Result<Response> {
    let ask = Ask::of(state, request).await?;
    let order = time_order(&ask)?;
    let query = match (ask.number("offset")?, ask.number("limit")?, order) {
        (0, 0, None) => ask.query.clone(),
        (0, 0, Some(order)) => in_order(ask.query.clone(), order),
        (_, 0, _) => return Err(invalid("offset", "goes with `limit`")),
        (offset, limit, order) => with_limit(ask.query.clone(), order.unwrap_or_default(), offset, limit),
    };
    let is_csv = match ask.params.get("format") {
        None => false,
        Some("csv") => true,
        Some(other) => return Err(invalid("format", &format!("`{other}` is not one of csv"))),
    };
    if let Some(plans) = ask.explained(state, &query).await? {
        return Ok(plans);
    }
    let (columns, few) = if is_csv {
        let (columns, few) = Columns::of(state, &ask, &query).await?;
        (Some(columns), few)
    } else {
        (None, None)
    };
    let head = columns.as_ref().map(|columns| Bytes::from(columns.head()));
    let mut rows = match few {
        Some(few) => Pieces { few, ..Pieces::of(None, ask.ctx.clone()) },
        None => Pieces::of(Some(state.engines.logsql.stream(&query, &ask.scope, &ask.ctx)), ask.ctx.clone()),
    };
    rows.columns = columns;
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
    let all = futures::stream::iter(head.into_iter().chain(first).map(Ok)).chain(rest);
    let mut response = lines(all.boxed());
    if is_csv {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv"));
    }
    Ok(response)
}

/// Bytes of a piece; a single row may be larger.
const PIECE_BYTES: usize = 64 * 1024;

/// Formats rows a piece at a time: a slow client holds the rows as they were found, and one piece.
#[derive(Debug)]
struct Pieces {
    /// Rows that were found before; they are all there are.
    few: VecDeque<Rows>,
    /// Where rows come from; `None`: there are no others.
    stream: Option<RowStream>,
    /// Rows that were found, and how many of them are written.
    found: Option<(Rows, usize)>,
    /// Rows that are written at once.
    step: usize,
    /// Columns of CSV; `None`: rows are JSON.
    columns: Option<Columns>,
    ctx: QueryContext,
}

impl Pieces {
    fn of(stream: Option<RowStream>, ctx: QueryContext) -> Self {
        Self { few: VecDeque::new(), stream, found: None, step: 16, columns: None, ctx }
    }

    /// The next rows; `None` at the end.
    async fn more(&mut self) -> Option<Result<Rows>> {
        match (self.few.pop_front(), &mut self.stream) {
            (Some(rows), _) => Some(Ok(rows)),
            (None, Some(stream)) => stream.next().await,
            (None, None) => None,
        }
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut out = String::new();
        loop {
            let (rows, written) = match self.found.take() {
                Some(found) => found,
                None => match self.more().await {
                    Some(rows) => (rows?, 0),
                    None => return Ok((!out.is_empty()).then(|| out.into())),
                },
            };
            let (from, len, began) = (out.len(), self.step.min(rows.len() - written), Instant::now());
            let some = rows.slice(written, len);
            match &self.columns {
                None => push_rows(&mut out, &some)?,
                Some(columns) => columns.push_rows(&mut out, &some)?,
            }
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
/// Shortest time between two looks of a tail.
const REFRESH_MIN: Duration = Duration::from_millis(100);
/// How often a tail that waits sees whether it may still go on.
const WATCH: Duration = Duration::from_millis(500);
/// Keeps a connection alive.
const NOTHING: Bytes = Bytes::from_static(b"\n");

pub(super) async fn tail(State(state): State<Arc<AppState>>, request: Request) -> Response {
    follow(&state, request).await.unwrap_or_else(|e| response::error(&e, "/select/logsql/tail"))
}

/// A query that is repeated for new rows. It is read anew for each look, and counts as long as that takes.
struct Tail {
    state: Arc<AppState>,
    texts: Texts,
    /// Memory of the texts.
    _memory: QueryReservation,
    ctx: QueryContext,
    identity: Arc<Identity>,
    refresh: Duration,
    offset_ns: i64,
    next_ns: i64,
    wait: bool,
    look: Option<TailPoll>,
    /// Whether rows of the last look were sent.
    begun: bool,
    _place: OwnedSemaphorePermit,
}

/// The rows being read.
struct TailPoll {
    pieces: Pieces,
    /// The end of their time range.
    end_ns: i64,
    /// The caller's access when reading began.
    access: Access,
    /// Memory of the query, read.
    _memory: QueryReservation,
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
    let tails = &state.capacity.places.tails;
    let place = tails.try_take().ok_or_else(|| {
        let text =
            format!("{} live tails are open, as many as `memory.limit` has room for; try again later", tails.most());
        Error::new(ErrorKind::Unavailable, text)
    })?;
    let memory = state.engines.logsql.collected("text of a tail", &ask.ctx);
    memory.add(ask.texts.bytes())?;
    let now_ns = state.clock.now_ms() * 1_000_000;
    let tail = Tail {
        state: Arc::clone(state),
        texts: ask.texts,
        _memory: memory,
        ctx: ask.ctx.clone(),
        identity: state.identity(),
        refresh: Duration::from_nanos(refresh_ns as u64).max(REFRESH_MIN),
        offset_ns,
        next_ns: now_ns.saturating_sub(back_ns).saturating_sub(offset_ns),
        wait: false,
        look: None,
        begun: false,
        _place: place,
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
    let mut response = lines(chunks.boxed());
    tails.kept_by(&mut response);
    Ok(response)
}

impl Tail {
    /// Waits for new rows; an empty line keeps the connection alive.
    async fn next(&mut self) -> Result<Bytes> {
        match self.piece().await {
            // Others hold the memory: the next look is for the same rows, none of which was sent.
            Err(error) if error.kind == ErrorKind::Unavailable && !self.begun && !self.ctx.query().is_stopped() => {
                Ok(NOTHING)
            }
            piece => piece,
        }
    }

    async fn piece(&mut self) -> Result<Bytes> {
        let mut look = if let Some(look) = self.look.take() {
            look
        } else {
            self.begun = false;
            if std::mem::replace(&mut self.wait, true) {
                self.pause().await?;
            }
            if self.stops() {
                return Ok(NOTHING);
            }
            let Some(look) = self.look()? else { return Ok(NOTHING) };
            look
        };
        let next = {
            let mut next = pin!(look.pieces.next());
            loop {
                let came = timeout(WATCH, next.as_mut()).await;
                if let Ok(Ok(None)) = came {
                    break None;
                }
                // Rows take long where there are many, or where they are read slowly: rights may be others by now.
                if self.state.access_by_now(&self.identity, Domain::Logs)? != look.access {
                    // What none was sent of is looked for again.
                    return if self.begun { Err(Error::new(ErrorKind::Cancelled, WITHDRAWN)) } else { Ok(NOTHING) };
                }
                match came {
                    Ok(piece) => break piece?,
                    Err(_) if self.stops() => return Ok(NOTHING),
                    Err(_) => {}
                }
            }
        };
        let Some(piece) = next else {
            self.next_ns = look.end_ns.saturating_add(1);
            return Ok(NOTHING);
        };
        self.begun = true;
        self.look = Some(look);
        Ok(piece)
    }

    /// Waits until it is time for the next look.
    ///
    /// # Errors
    /// Cancelled; Unauthenticated, Forbidden: the caller may see nothing any longer.
    async fn pause(&self) -> Result<()> {
        let ctx = self.ctx.another_run();
        ctx.query().enter(Phase::Queue);
        let began = Instant::now();
        while !self.stops() {
            let left = self.refresh.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            let step = async {
                tokio::time::sleep(left.min(WATCH)).await;
                Ok::<_, Error>(())
            };
            ctx.or_cancelled("following", step).await?;
            self.state.access_by_now(&self.identity, Domain::Logs)?;
        }
        Ok(())
    }

    /// Begins to look for new rows; `None`: there can be none yet.
    fn look(&self) -> Result<Option<TailPoll>> {
        let now_ns = self.state.clock.now_ms() * 1_000_000;
        let end_ns = now_ns.saturating_sub(self.offset_ns);
        if end_ns < self.next_ns {
            return Ok(None);
        }
        // Rights that were withdrawn meanwhile take effect here.
        let access = self.state.access_by_now(&self.identity, Domain::Logs)?;
        let ctx = self.ctx.another_run_as(access.clone());
        let memory = self.state.engines.logsql.collected("query text", &ctx);
        memory.add(TEXT_FACTOR * self.texts.bytes())?;
        let (query, extra) = self.texts.read()?;
        let query = followed(query)?;
        let scope = QueryScope { now_ns, start_ns: Some(self.next_ns), end_ns: Some(end_ns), extra };
        let stream = self.state.engines.logsql.stream(&query, &scope, &ctx);
        let pieces = Pieces::of(Some(stream), ctx);
        Ok(Some(TailPoll { pieces, end_ns, access, _memory: memory }))
    }

    fn stops(&self) -> bool {
        self.state.process.stopping.load(Relaxed)
    }
}
