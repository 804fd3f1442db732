//! Long answers: few of them are made at once, and what is made and not sent yet stays within one bound. A list of 1,000
//! entities may have hundreds of megabytes, and whoever asks for it may take his time to read it.

use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes};
use quiver_config::{Problem, ProblemKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::sending::in_pieces;

/// Lists and exports that are made at once.
static MADE: Semaphore = Semaphore::const_new(4);
/// MiB of answers that are being sent.
const SENT_MIB: u32 = 128;
static SENT: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(SENT_MIB as usize)));
/// Answers up to so many bytes are sent without being counted.
const SHORT_BYTES: usize = 1 << 20;

/// Waits until a list or an export may be made; it may until what is given back is dropped.
pub(super) async fn turn() -> Option<SemaphorePermit<'static>> {
    MADE.acquire().await.ok()
}

/// A body that is written already.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Its media type.
    pub(super) kind: &'static str,
    pieces: Vec<Bytes>,
    /// Its share of what may be sent at once; none: it is short.
    held: Option<Arc<OwnedSemaphorePermit>>,
}

impl Written {
    /// Takes a body in pieces, if there is room for it: nothing waits for room, since it takes memory meanwhile.
    ///
    /// # Errors
    /// `QUERY_TOO_EXPENSIVE`: it is too long. `STORE_BUSY`: others do not read theirs.
    pub(super) fn new(kind: &'static str, pieces: Vec<Bytes>) -> Result<Self> {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        not_too_long(bytes)?;
        if bytes <= SHORT_BYTES {
            return Ok(Self { kind, pieces: vec![pieces.concat().into()], held: None });
        }
        let mib = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(SENT_MIB);
        let Ok(room) = Arc::clone(&SENT).try_acquire_many_owned(mib) else {
            let text = "too many long answers are being sent; try again";
            return Err(Problem::new(ProblemKind::Busy, "STORE_BUSY", text));
        };
        Ok(Self { kind, pieces, held: Some(Arc::new(room)) })
    }

    /// The body that sends it.
    pub(super) fn into_body(mut self) -> Body {
        if self.held.is_none() {
            return self.pieces.pop().map(Body::from).unwrap_or_default();
        }
        in_pieces(Pieces { left: self.pieces.into_iter(), _held: self.held })
    }
}

/// Refuses what is longer than any answer may be.
///
/// # Errors
/// `QUERY_TOO_EXPENSIVE`.
pub(super) fn not_too_long(bytes: usize) -> Result<()> {
    if bytes > (SENT_MIB as usize) << 20 {
        let text = format!("the answer has more than {SENT_MIB} MiB; ask for less by `filter`, `fields` or `limit`");
        return Err(Problem::new(ProblemKind::Invalid, "QUERY_TOO_EXPENSIVE", text));
    }
    Ok(())
}

/// Pieces of a body, with the room that they take.
struct Pieces {
    left: std::vec::IntoIter<Bytes>,
    _held: Option<Arc<OwnedSemaphorePermit>>,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.left.next()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// What is not read yet takes of what may be sent at once, and gives it back.
    #[tokio::test]
    async fn long_answers_are_bounded() {
        let written = |mib: usize| Written::new("text/plain", vec![Bytes::from(vec![b'x'; mib << 20])]);
        assert_eq!(written(129).unwrap_err().code, "QUERY_TOO_EXPENSIVE");
        let unread = written(100).unwrap().into_body();
        assert_eq!(written(64).unwrap_err().code, "STORE_BUSY");
        let short = written(1).unwrap().into_body();
        assert_eq!(short.collect().await.unwrap().to_bytes().len(), 1 << 20, "a short one goes on");
        drop(unread);
        let read = written(64).unwrap().into_body();
        assert_eq!(read.collect().await.unwrap().to_bytes().len(), 64 << 20);
        written(128).unwrap();
    }
}
