//! Response bodies in pieces: made while the client reads them or, if that is impossible, accounted to the memory of
//! their query until they are sent. So a slow client holds only what is accounted, and a few pieces.

use std::convert::Infallible;
use std::io;

use axum::body::Body;
use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream;
use quiver_query::{QueryContext, QueryEngine, from_datafusion};
use quiver_traces::{JsonWriter, ReaderClosed};
use quiver_types::Result;

/// Approximate size of a piece in bytes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Makes a body from a function that appends one piece per call and returns whether that was the last. The function
/// is dropped after the last piece, or when the client disconnects. A short body gets a `Content-Length`.
pub(crate) fn while_read(mut append: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Body {
    let mut first = Vec::new();
    if append(&mut first) {
        return Body::from(first);
    }
    let mut open = Some(append);
    let rest = std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        if open.as_mut()?(&mut piece) {
            open = None;
        }
        Some(piece)
    });
    streamed(std::iter::once(first).chain(rest).map(Bytes::from))
}

fn streamed(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)))
}

/// A response text that is made all at once. Each piece is reserved in the query's memory before it is kept, and
/// released when it is sent.
#[derive(Debug)]
pub(crate) struct Text {
    pieces: Vec<Bytes>,
    open: Vec<u8>,
    memory: MemoryReservation,
    outcome: Result<()>,
}

impl Text {
    /// Begins without pieces.
    pub(crate) fn new(engine: &QueryEngine, ctx: &QueryContext) -> Self {
        Self { pieces: Vec::new(), open: Vec::new(), memory: engine.reservation("answer", ctx), outcome: Ok(()) }
    }

    /// Appends the JSON that a function writes.
    pub(crate) fn write(mut self, write: impl FnOnce(&mut JsonWriter<'_>)) -> Self {
        let mut writer = JsonWriter::pieces(|piece| self.push(piece).map_err(|_| ReaderClosed));
        write(&mut writer);
        // Errors are reported by the body.
        let _ = writer.finish();
        self
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The query's memory is used up; then there is no body either.
    pub(crate) fn push(&mut self, mut piece: Vec<u8>) -> io::Result<()> {
        if self.outcome.is_ok() {
            self.outcome = self.memory.try_grow(piece.len()).map_err(from_datafusion);
        }
        if self.outcome.is_err() {
            return Err(io::Error::other("the memory of the query is used up"));
        }
        piece.shrink_to_fit();
        self.pieces.push(Bytes::from(piece));
        Ok(())
    }

    /// Puts a piece before all others.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn begin_with(&mut self, head: Vec<u8>) -> io::Result<()> {
        self.push(head)?;
        self.pieces.rotate_right(1);
        Ok(())
    }

    /// Inserts a piece before those added since the position `from`, and closes the last one. Returns the position behind
    /// them.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn enclose(&mut self, from: usize, head: Vec<u8>) -> io::Result<usize> {
        if !self.open.is_empty() {
            let rest = std::mem::take(&mut self.open);
            self.push(rest)?;
        }
        self.push(head)?;
        self.pieces[from..].rotate_right(1);
        Ok(self.pieces.len())
    }

    /// Makes the body.
    ///
    /// # Errors
    /// LimitExceeded: the query's memory was used up.
    pub(crate) fn body(mut self) -> Result<Body> {
        if !self.open.is_empty() {
            let rest = std::mem::take(&mut self.open);
            // An error is reported by the outcome.
            let _ = self.push(rest);
        }
        let Self { mut pieces, memory, outcome, .. } = self;
        outcome?;
        if pieces.len() <= 1 {
            return Ok(Body::from(pieces.pop().unwrap_or_default()));
        }
        Ok(streamed(pieces.into_iter().inspect(move |piece| memory.shrink(piece.len()))))
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A long text is split, so that each piece is reserved before the next.
        let taken = bytes.len().min(PIECE_BYTES - self.open.len());
        self.open.extend_from_slice(&bytes[..taken]);
        if self.open.len() == PIECE_BYTES {
            let piece = std::mem::take(&mut self.open);
            self.push(piece)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http_body_util::BodyExt;
    use quiver_types::ErrorKind;

    use super::*;

    fn engine(memory_bytes: usize) -> (std::sync::Arc<QueryEngine>, QueryContext) {
        let settings = quiver_query::EngineSettings::small(memory_bytes);
        let ctx = QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        (QueryEngine::new(&settings).expect("an engine"), ctx)
    }

    #[tokio::test]
    async fn what_is_made_at_once_counts_until_it_is_sent() {
        let (engine, ctx) = engine(8 << 20);
        let mut text = Text::new(&engine, &ctx);
        let list: Vec<u32> = (0..200_000).collect();
        serde_json::to_writer(&mut text, &list).expect("room");
        text.flush().expect("nothing to do");
        let mut body = text.body().expect("room");
        drop(ctx);
        let held = engine.memory_reserved();
        assert!((1 << 20..2 << 20).contains(&held), "{held}");
        let first = body.frame().await.expect("a frame").expect("a frame").into_data().expect("data");
        assert_eq!(engine.memory_reserved(), held - first.len());
        let rest = body.collect().await.expect("a body").to_bytes();
        let read: Vec<u32> = serde_json::from_slice(&[first, rest].concat()).expect("JSON");
        assert_eq!((read, engine.memory_reserved()), (list, 0));
    }

    #[tokio::test]
    async fn what_finds_no_memory_is_refused() {
        let (engine, ctx) = engine(1 << 20);
        let text = Text::new(&engine, &ctx).write(|w| w.array(|w| (0..1_000_000).for_each(|n| w.raw(n))));
        assert_eq!(text.body().expect_err("no room").kind, ErrorKind::LimitExceeded);
        assert_eq!(engine.memory_reserved(), 0);
        let small = Text::new(&engine, &ctx).write(|w| w.array(|w| w.raw(1))).body().expect("room");
        assert_eq!(small.collect().await.expect("a body").to_bytes(), "[1]");
    }

    #[tokio::test]
    async fn what_is_made_while_it_is_read_is_whole() {
        for count in [0, 1, 100_000] {
            let mut left = 0..count;
            let body = while_read(move |piece| {
                while piece.len() < PIECE_BYTES {
                    let Some(n) = left.next() else { return true };
                    piece.extend_from_slice(format!("{n},").as_bytes());
                }
                false
            });
            let read = body.collect().await.expect("a body").to_bytes();
            let expected: String = (0..count).map(|n| n.to_string() + ",").collect();
            assert_eq!(read, expected);
        }
    }

    async fn frames(mut body: Body) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            sizes.push(frame.expect("a frame").into_data().expect("data").len());
        }
        sizes
    }

    /// Would fail if a text of exactly one piece were held back, or the last byte of one that is longer by a byte
    /// were lost.
    #[tokio::test]
    async fn texts_are_cut_into_pieces() {
        let (engine, ctx) = engine(8 << 20);
        for (bytes, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (PIECE_BYTES - 1, vec![PIECE_BYTES - 1]),
            (PIECE_BYTES, vec![PIECE_BYTES]),
            (PIECE_BYTES + 1, vec![PIECE_BYTES, 1]),
            (3 * PIECE_BYTES, vec![PIECE_BYTES; 3]),
        ] {
            for step in [7_777, bytes.max(1)] {
                let mut text = Text::new(&engine, &ctx);
                let all: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
                for part in all.chunks(step) {
                    text.write_all(part).expect("room");
                }
                let body = text.body().expect("room");
                assert_eq!(frames(body).await, expected, "{bytes} by {step}");
            }
        }
        assert_eq!(engine.memory_reserved(), 0);
    }

    /// What tells how long a text is stands before it, and is known after it.
    #[tokio::test]
    async fn a_head_comes_first() {
        let (engine, ctx) = engine(8 << 20);
        for bytes in [0, 3, PIECE_BYTES, 2 * PIECE_BYTES + 5] {
            let mut text = Text::new(&engine, &ctx);
            text.write_all(&vec![b'x'; bytes]).expect("room");
            text.begin_with(b"head ".to_vec()).expect("room");
            let read = text.body().expect("room").collect().await.expect("a body").to_bytes();
            assert_eq!(read, format!("head {}", "x".repeat(bytes)));
        }
        assert_eq!(engine.memory_reserved(), 0);
    }

    /// Breaks if the head of a part, whose length is known only at its end, is not inserted before it.
    #[tokio::test]
    async fn each_part_has_its_head() {
        let (engine, ctx) = engine(8 << 20);
        let (mut text, mut place, mut expected) = (Text::new(&engine, &ctx), 0, String::new());
        for bytes in [3, 0, PIECE_BYTES, 2 * PIECE_BYTES + 5] {
            let part = "x".repeat(bytes);
            text.write_all(part.as_bytes()).expect("room");
            let head = format!("<{bytes}>");
            place = text.enclose(place, head.clone().into_bytes()).expect("room");
            expected.extend([head, part]);
        }
        let read = text.body().expect("room").collect().await.expect("a body").to_bytes();
        assert!(read == expected.as_bytes(), "{} bytes", read.len());
        assert_eq!(engine.memory_reserved(), 0);
        let mut text = Text::new(&engine, &ctx);
        assert!(text.enclose(0, vec![b'a'; 16 << 20]).is_err());
        assert!(text.enclose(0, Vec::new()).is_err(), "there is a gap before it");
    }

    #[tokio::test]
    async fn nothing_is_kept_after_the_memory_is_used_up() {
        let (engine, ctx) = engine(1 << 20);
        let mut text = Text::new(&engine, &ctx);
        text.push(vec![b'a'; 1000]).expect("room");
        assert!(text.push(vec![b'b'; 2 << 20]).is_err());
        // Even a text for which there is room: there would be a gap before it.
        assert!(text.push(vec![b'c'; 10]).is_err());
        assert!(text.write_all(&b"d".repeat(PIECE_BYTES)).is_err());
        assert_eq!(text.body().expect_err("a part is lacking").kind, ErrorKind::LimitExceeded);
        assert_eq!(engine.memory_reserved(), 0);
    }

    /// The function behind a body is dropped after its last piece, or when the client disconnects.
    #[tokio::test]
    async fn what_makes_a_body_is_let_go() {
        let held = std::sync::Arc::new(());
        let begun = |pieces: usize| {
            let (held, mut left) = (std::sync::Arc::clone(&held), pieces);
            while_read(move |piece| {
                assert!(std::sync::Arc::strong_count(&held) > 0);
                left -= 1;
                piece.extend_from_slice(b"ab");
                left == 0
            })
        };
        let short = begun(1);
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "it is made already");
        assert_eq!(hyper::body::Body::size_hint(&short).exact(), Some(2));
        let mut long = begun(3);
        assert_eq!(hyper::body::Body::size_hint(&long).exact(), None);
        for _ in 0..3 {
            assert_eq!(std::sync::Arc::strong_count(&held), 2);
            long.frame().await.expect("a frame").expect("a frame");
        }
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "the last piece is made");
        assert!(long.frame().await.is_none());
        let mut left = begun(3);
        left.frame().await.expect("a frame").expect("a frame");
        drop(left);
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "its reader has gone");
    }
}
