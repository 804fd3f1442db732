//! Responses that are streamed, batch by batch, as the query finds its rows.
//!
//! The query runs as long as its response is being sent; a client that disconnects ends it. An error before the first
//! rows are sent (up to about a thousand are held back) becomes an error response. After that the connection is cut, so
//! that the client cannot take what it got for the whole.

use std::convert::Infallible;
use std::time::Instant;

use arrow::array::RecordBatch;
use axum::body::Body;
use bytes::Bytes;
use futures::stream::unfold;
use quiver_query::rows::Rows;
use quiver_query::{QueryContext, QueryReservation};
use quiver_types::Result;
use serde_json::{Value, json};
use tracing::Span;

use crate::error::log;

/// Makes a body of pieces that are produced as the client reads. The iterator holds the memory that they come from.
pub(crate) fn in_pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, Infallible>)))
}

/// Encodes batches in a response format.
pub(crate) trait BatchWriter: Send {
    /// Encodes rows, and gives the bytes that can be sent.
    ///
    /// # Errors
    /// Rows that the format cannot represent.
    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes>;

    /// Bytes that it holds beside what it gave out.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Gives the end of the response.
    ///
    /// # Errors
    /// As [`Self::batch`].
    fn end(self: Box<Self>, stats: &Value) -> Result<Bytes>;
}

/// A response that is being sent.
pub(crate) struct StreamedResponse {
    rows: Rows,
    /// `None` once everything is sent.
    writer: Option<Box<dyn BatchWriter>>,
    /// The context of the query, which holds its memory.
    ctx: QueryContext,
    /// The memory of what the writer holds, and how much that was at most.
    memory: QueryReservation,
    held: usize,
    began: Instant,
    count: u64,
    route: &'static str,
}

impl StreamedResponse {
    /// Makes a response of which nothing has been sent. `memory` is of the query, for what the writer holds; `began` is when
    /// the request arrived.
    pub(crate) fn new(
        rows: Rows,
        writer: Box<dyn BatchWriter>,
        (ctx, memory): (QueryContext, QueryReservation),
        began: Instant,
        route: &'static str,
    ) -> Self {
        Self { rows, writer: Some(writer), ctx, memory, held: 0, began, count: 0, route }
    }

    /// The body that sends it.
    pub(crate) fn body(self) -> Body {
        let (span, route) = (Span::current(), self.route);
        let pieces = unfold(Some(self), move |sending| {
            let span = span.clone();
            let next = async move {
                let mut sending = sending.filter(|sending| sending.writer.is_some())?;
                match sending.next().await {
                    Ok(piece) => Some((Ok(piece), Some(sending))),
                    // An error ends the connection, so that the client cannot take the part for the whole.
                    Err(error) => {
                        log(&error, route);
                        Some((Err(std::io::Error::other(error.message)), None))
                    }
                }
            };
            tracing::Instrument::instrument(next, span)
        });
        Body::from_stream(pieces)
    }

    /// Gives the next piece that is not empty.
    async fn next(&mut self) -> Result<Bytes> {
        loop {
            let Some(writer) = &mut self.writer else { return Ok(Bytes::new()) };
            let piece = if let Some(batch) = self.rows.next().await? {
                self.count += batch.num_rows() as u64;
                let piece = writer.batch(&batch)?;
                let more = writer.held_bytes().saturating_sub(self.held);
                if more > 0 {
                    self.memory.add(more)?;
                    self.held += more;
                }
                piece
            } else {
                let stats = self.stats();
                self.writer.take().map_or_else(|| Ok(Bytes::new()), |writer| writer.end(&stats))?
            };
            if !piece.is_empty() || self.writer.is_none() {
                return Ok(piece);
            }
        }
    }

    fn stats(&self) -> Value {
        let mut stats = json!({ "rows": self.count, "elapsed_ms": self.began.elapsed().as_secs_f64() * 1e3 });
        for (name, value) in self.ctx.stats.told() {
            stats[name] = value.into();
        }
        stats
    }
}
