//! Responses that are lists of JSON texts: series, names, values. A large one is assembled while it is read.

use axum::response::Response;
use datafusion::execution::memory_pool::MemoryReservation;
use quiver_query::{QueryContext, QueryEngine, from_datafusion};
use quiver_types::{Error, ErrorKind, Result};

use crate::encode::body_pieces::{PIECE_BYTES, while_read};
use crate::encode::json::json_body;
use crate::encode::prometheus::{Envelope, begin_success, close_success};

/// Bytes that a text takes besides its length.
const TEXT_BYTES: usize = 64;

/// The texts of a response, limited by the memory of the query and by the largest response.
#[derive(Debug)]
pub(crate) struct TextList {
    texts: Vec<String>,
    memory: MemoryReservation,
    /// Bytes of the response so far, and the maximum.
    bytes: usize,
    bytes_max: usize,
    /// The context of the query, which holds its statistics.
    _ctx: QueryContext,
}

impl TextList {
    /// Starts an empty list.
    pub(crate) fn new(engine: &QueryEngine, ctx: &QueryContext, bytes_max: usize) -> Self {
        let memory = engine.reservation("list", ctx);
        Self { texts: Vec::new(), memory, bytes: 0, bytes_max, _ctx: ctx.clone() }
    }

    /// Reserves the memory of a text that is about to be made.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes + TEXT_BYTES).map_err(from_datafusion)
    }

    /// Adds a text whose memory is reserved.
    ///
    /// # Errors
    /// LimitExceeded: the response is too large.
    pub(crate) fn push(&mut self, mut text: String) -> Result<()> {
        text.shrink_to_fit();
        self.bytes += text.len() + 1;
        if self.bytes > self.bytes_max {
            let text = format!("the answer is larger than the limit of {} bytes", self.bytes_max);
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        self.texts.push(text);
        Ok(())
    }

    /// Number of texts.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Keeps the first `len` texts.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.texts.truncate(len);
    }

    /// Makes the response.
    pub(crate) fn response(self, envelope: &Envelope) -> Response {
        let Self { texts, memory, _ctx: ctx, .. } = self;
        let (mut head, mut tail) = (begin_success(), vec![b']']);
        head.push(b'[');
        close_success(&mut tail, envelope);
        let mut texts = texts.into_iter().enumerate();
        json_body(while_read(move |piece| {
            let _held = (&memory, &ctx);
            piece.append(&mut head);
            while piece.len() < PIECE_BYTES {
                let Some((i, text)) = texts.next() else {
                    piece.append(&mut tail);
                    return true;
                };
                piece.extend_from_slice(if i > 0 { b"," } else { b"" });
                piece.extend_from_slice(text.as_bytes());
                // The memory of each text is released when it is sent.
                memory.shrink((text.len() + TEXT_BYTES).min(memory.size()));
            }
            false
        }))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn pieces_make_a_whole() {
        let engine = QueryEngine::new(&quiver_query::EngineSettings::small(64 << 20)).expect("an engine");
        let ctx = QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        for count in [0, 1, 3, 300_000] {
            let mut list = TextList::new(&engine, &ctx, 16 << 20);
            for i in 0..count {
                list.take(10).expect("room");
                list.push(format!("\"{i}\"")).expect("room");
            }
            let body = list.response(&Envelope::default()).into_body().collect().await.expect("a body").to_bytes();
            let read: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            let expected: Vec<_> = (0..count).map(|i| i.to_string()).collect();
            assert_eq!(read["data"], serde_json::json!(expected));
        }
        assert_eq!(engine.memory_reserved(), 0);
        let mut list = TextList::new(&engine, &ctx, 10);
        assert!(list.push("123456789".to_owned()).is_ok() && list.push(String::new()).is_err());
    }

    fn engine(memory_bytes: usize) -> (std::sync::Arc<QueryEngine>, QueryContext) {
        let settings = quiver_query::EngineSettings::small(memory_bytes);
        let ctx = QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        (QueryEngine::new(&settings).expect("an engine"), ctx)
    }

    /// The limit includes the comma after each text, but not the envelope.
    #[test]
    fn the_limit_is_met_to_the_byte() {
        let (engine, ctx) = engine(64 << 20);
        for (bytes_max, fits) in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (11, 2), (12, 3), (usize::MAX, 3)] {
            let mut list = TextList::new(&engine, &ctx, bytes_max);
            let taken = (0..3).take_while(|_| list.push("abc".to_owned()).is_ok()).count();
            assert_eq!((taken, list.len()), (fits, fits), "{bytes_max}");
        }
        let mut list = TextList::new(&engine, &ctx, 3);
        let error = list.push("abc".to_owned()).expect_err("a comma too much");
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert_eq!(error.message, "the answer is larger than the limit of 3 bytes");
    }

    #[test]
    fn texts_are_taken_before_they_are_made() {
        let (engine, ctx) = engine(1 << 20);
        let list = TextList::new(&engine, &ctx, usize::MAX);
        list.take(1000).expect("room");
        assert_eq!(engine.memory_reserved(), 1000 + TEXT_BYTES);
        assert_eq!(list.take(2 << 20).expect_err("no room").kind, ErrorKind::LimitExceeded);
        assert_eq!(engine.memory_reserved(), 1000 + TEXT_BYTES, "what is refused is not held");
        drop(list);
        assert_eq!(engine.memory_reserved(), 0);
    }

    #[tokio::test]
    async fn what_is_cut_is_not_shown() {
        let (engine, ctx) = engine(64 << 20);
        for (len, expected) in [(0, "[]"), (1, "[1]"), (2, "[1,2]"), (3, "[1,2,3]"), (9, "[1,2,3]")] {
            let mut list = TextList::new(&engine, &ctx, 1000);
            for text in ["1", "2", "3"] {
                list.push(text.to_owned()).expect("room");
            }
            list.truncate(len);
            let envelope = Envelope { warnings: vec!["cut".to_owned()], ..Envelope::default() };
            let body = list.response(&envelope).into_body().collect().await.expect("a body").to_bytes();
            let whole = format!(r#"{{"status":"success","data":{expected},"warnings":["cut"]}}"#);
            assert_eq!(body, whole, "{len}");
        }
    }
}
