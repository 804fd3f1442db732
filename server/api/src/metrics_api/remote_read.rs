//! Remote read: raw samples of selectors, in one message or as a stream of chunk frames.
//!
//! Source: Prometheus 3.14 `storage/remote/read_handler.go`; errors are plain text (`metrics-api` section 6).

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use datafusion::execution::memory_pool::MemoryReservation;
use http::{StatusCode, header};
use quiver_ingest::{Encoding, content_encoding};
use quiver_promql::RawReader;
use quiver_promql::kernel::SeriesSamples;
use quiver_query::{Pace, QueryContext, from_datafusion};
use quiver_types::read_stats::get;
use quiver_types::{Error, ErrorKind, Result, SeriesTable};
use tokio::sync::OwnedSemaphorePermit;

use crate::body_memory::read_body;
use crate::encode::packed_chunks::PackedChunks;
use crate::encode::remote_read::{ReadQuery, ReadRequest, ResponseType, decode, put_series};
use crate::error::{plain, plain_error};
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::state::AppState;
use crate::streamed_responses::in_pieces;

const ROUTE: &str = "/api/v1/read";
/// Memory that each byte of a request takes when it is decoded, at most: two bytes are a matcher, or a text of a list.
const REQUEST_FACTOR: usize = 64;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, post(boxed(read)))
}

async fn read(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answer(&state, request).await.unwrap_or_else(|e| plain_error(&e, ROUTE))
}

async fn answer(state: &Arc<AppState>, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let encoding = head.headers.get(header::CONTENT_ENCODING).and_then(|v| v.to_str().ok());
    if encoding.is_some_and(|e| !e.trim().is_empty() && !e.trim().eq_ignore_ascii_case("snappy")) {
        return Err(Error::invalid("remote read requests are compressed with snappy"));
    }
    let body = read_body(&state.capacity.bodies, &head.headers, body, state.settings.form_bytes_max).await?;
    let (mut share, most) = (state.capacity.bodies.share(), state.settings.form_bytes_max);
    let body =
        content_encoding::decompress(Encoding::Snappy, &body, most, &mut |bytes| share.try_hold(bytes))?.into_owned();
    // Taken after the body has arrived: slow senders must not keep others waiting.
    let place = state.capacity.places.reads.take().await;
    let place = place.map_err(|_| Error::internal("the server stops"))?;
    let ctx = state.context(Language::RemoteRead);
    let (reader, bytes_max) = (state.engines.promql.raw(&ctx), state.settings.answer_bytes_max);
    let memory = state.engines.query.reservation("remote read", &ctx);
    let request = state.engines.query.collected("request", &ctx);
    request.add(REQUEST_FACTOR * body.len())?;
    let pace = Pace::new(&ctx, "query preparation");
    let work = async move {
        let _request = request;
        let ReadRequest { queries, response_type } = decode(&body, Some(&pace))?;
        match response_type {
            ResponseType::Samples => samples(reader, queries, bytes_max, memory).await.map(Answer::Samples),
            ResponseType::StreamedXorChunks => chunked(reader, queries, memory).await.map(Answer::Chunks),
        }
    };
    let answered = state.engines.query.run(&ctx, work).await.map(|answer| {
        let mut response = match answer {
            Answer::Samples(message) => whole(message, place),
            Answer::Chunks(packed) => streamed(packed, place, ctx.clone()),
        };
        state.capacity.places.reads.kept_by(&mut response);
        response
    });
    // The engine's limit of samples has the text and the status (400) of this protocol; other errors are reported as
    // everywhere.
    answered.map_err(|e| {
        let max = ctx.limits.samples_max;
        let exceeded = e.kind == ErrorKind::LimitExceeded && get(&ctx.stats.samples) > max;
        if exceeded { Error::invalid(format!("exceeded sample limit ({max})")) } else { e }
    })
}

/// The data that was read, with its memory.
enum Answer {
    Samples((Vec<u8>, MemoryReservation)),
    Chunks(PackedSeries),
}

fn too_large(what: &str, bytes_max: usize) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("{what} is larger than the limit of {bytes_max} bytes"))
}

/// Most bytes of a float sample in a message.
const SAMPLE_BYTES_MAX: usize = 24;

fn histogram_bytes(h: &quiver_types::Histogram) -> usize {
    2 * h.memory_bytes()
}

/// Gives a `prometheus.ReadResponse`. Where only series are looked for, these come without samples, as from Prometheus.
async fn samples(
    reader: RawReader,
    queries: Vec<ReadQuery>,
    bytes_max: usize,
    memory: MemoryReservation,
) -> Result<(Vec<u8>, MemoryReservation)> {
    let mut message = Vec::new();
    for ReadQuery { matchers, range, labels_only } in queries {
        let mut result = Vec::new();
        let mut put = |table: &SeriesTable, row: u32, samples: &SeriesSamples<'_>| -> Result<()> {
            // Both buffers grow by doubling; at the end the compressed message is held next to the plain one.
            let next = samples.ts.len() * SAMPLE_BYTES_MAX + samples.hists.iter().map(histogram_bytes).sum::<usize>();
            memory.try_resize(3 * (message.len() + result.len() + next)).map_err(from_datafusion)?;
            put_series(&mut result, table.labels(row as usize), samples);
            if message.len() + result.len() > bytes_max {
                return Err(too_large("the answer", bytes_max));
            }
            Ok(())
        };
        if labels_only {
            reader.each_labels(matchers, range, |table, row| put(table, row, &SeriesSamples::default())).await?;
        } else {
            let series = reader.select(matchers, range).await?;
            series.each(|row, samples| put(&series.table, row, samples)).await?;
        }
        quiver_ingest::wire::put_bytes(&mut message, 1, &result);
    }
    message.shrink_to_fit();
    memory.resize(message.len());
    Ok((message, memory))
}

/// Compresses the message while the client reads it. The request keeps its permit until then.
fn whole((message, memory): (Vec<u8>, MemoryReservation), place: OwnedSemaphorePermit) -> Response {
    let packed = match content_encoding::snappy_pieces(message) {
        Ok(packed) => packed,
        Err(e) => return plain(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    };
    let pieces = packed.map(move |piece| {
        let _held = (&place, &memory);
        Bytes::from(piece)
    });
    let headers = [(header::CONTENT_TYPE, "application/x-protobuf"), (header::CONTENT_ENCODING, "snappy")];
    (headers, in_pieces(pieces)).into_response()
}

/// The chunks of all series of each query, in the order of labels, and the tables that have these.
struct PackedSeries {
    chunks: PackedChunks,
    tables: Vec<Arc<SeriesTable>>,
}

/// Reads all series as chunks, in order. The first frame is sent once nothing can fail any more, so all chunks are in
/// memory: a few bytes per sample.
async fn chunked(reader: RawReader, queries: Vec<ReadQuery>, memory: MemoryReservation) -> Result<PackedSeries> {
    let (mut packed, mut tables) = (PackedChunks::new(memory), Vec::with_capacity(queries.len()));
    for (query, ReadQuery { matchers, range, .. }) in (0..).zip(queries) {
        let mut found = reader.ordered_chunks(matchers, range).await?;
        found.each(|row, chunks| packed.push(query, row, &chunks)).await?;
        tables.push(found.table);
    }
    Ok(PackedSeries { chunks: packed, tables })
}

/// Makes frames while the client reads them. The request keeps its permit until then, and the query the memory of its
/// tables.
fn streamed(PackedSeries { chunks, tables }: PackedSeries, place: OwnedSemaphorePermit, ctx: QueryContext) -> Response {
    let frames = chunks.frames(tables).inspect(move |_| {
        let _held = (&place, &ctx);
    });
    let content_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    ([(header::CONTENT_TYPE, content_type)], in_pieces(frames)).into_response()
}
