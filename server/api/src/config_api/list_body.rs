//! Writes a page of entities piece by piece. Each entity is dropped once it is written; text that the client has not read
//! yet counts against a memory budget.

use std::fmt;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures::stream;
use quiver_config::{Page, Problem, ProblemKind, Result};
use quiver_ingest::DecodeRoom;
use serde_json::json;

use crate::body_memory::BodyBudget;
use crate::request_context::RequestInfo;

/// About the bytes of a piece. A text of one piece is small enough not to be counted.
const PIECE_BYTES: usize = 64 << 10;

/// A page as it is sent.
#[derive(Clone)]
pub(crate) struct ListBody {
    pieces: Vec<Bytes>,
    room: Option<Arc<dyn DecodeRoom>>,
}

impl fmt::Debug for ListBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListBody").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

/// Writes the entities of a page, and what stands around them.
fn written(page: Page) -> Vec<Bytes> {
    let (mut pieces, mut open) = (Vec::new(), "{\"items\":[".to_owned());
    for (n, entity) in page.items.into_iter().enumerate() {
        if open.len() >= PIECE_BYTES {
            pieces.push(Bytes::from(std::mem::take(&mut open)));
        }
        if n > 0 {
            open.push(',');
        }
        open.push_str(&serde_json::Value::Object(entity).to_string());
    }
    open.push_str("],\"nextCursor\":");
    open.push_str(&json!(page.next_cursor).to_string());
    if let Some(total) = page.total {
        open.push_str(",\"total\":");
        open.push_str(&total.to_string());
    }
    open.push('}');
    pieces.push(Bytes::from(open));
    pieces
}

impl ListBody {
    /// Writes a page, and waits until there is room for its text.
    ///
    /// # Errors
    /// `STORE_BUSY`: others read theirs too slowly.
    pub(super) async fn of(page: Page, bodies: &BodyBudget) -> Result<Self> {
        let pieces = written(page);
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        if pieces.len() == 1 && bytes <= 2 * PIECE_BYTES {
            return Ok(Self { pieces, room: None });
        }
        // Until it is sent.
        RequestInfo::note_held(bodies.decoding_needed());
        let room = bodies.decoding_on(true);
        let asked = Arc::clone(&room);
        let is_held = tokio::task::spawn_blocking(move || asked.hold(bytes)).await.map_err(Problem::internal)?;
        if !is_held {
            let text = "the memory for lists is used up by those that are read slowly, try again later";
            return Err(Problem::new(ProblemKind::Busy, "STORE_BUSY", text));
        }
        Ok(Self { pieces, room: Some(room) })
    }

    /// The body; each piece is dropped when it is sent.
    pub(super) fn body(self) -> Body {
        let Self { mut pieces, room } = self;
        if room.is_none() && pieces.len() <= 1 {
            return Body::from(pieces.pop().unwrap_or_default());
        }
        let sent = pieces.into_iter().map(move |piece| {
            let _counted = &room;
            Ok::<Bytes, io::Error>(piece)
        });
        Body::from_stream(stream::iter(sent))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::{Map, Value};

    use super::*;

    fn page(count: usize, bytes: usize, total: Option<usize>) -> Page {
        let entity =
            |n: usize| Map::from_iter([("id".to_owned(), json!(n)), ("q".to_owned(), json!("q".repeat(bytes)))]);
        let next_cursor = (count > 1).then(|| "a\"b".to_owned());
        Page { items: (0..count).map(entity).collect(), next_cursor, total }
    }

    #[tokio::test]
    async fn pieces_make_the_whole() {
        let bodies = BodyBudget::new(64 << 20, 1 << 20);
        for (count, bytes, total, pieces) in [
            (0, 0, None, 1),
            (1, 10, Some(7), 1),
            (3, 10, None, 1),
            (5, PIECE_BYTES, Some(9), 5),
            (1, 1 << 20, None, 1),
        ] {
            let page = page(count, bytes, total);
            let mut expected = json!({"items": page.items, "nextCursor": page.next_cursor});
            if let Some(total) = total {
                expected["total"] = json!(total);
            }
            let body = ListBody::of(page, &bodies).await.expect("room");
            assert_eq!(body.pieces.len(), pieces, "{count} of {bytes}");
            let read = body.body().collect().await.expect("a body").to_bytes();
            let read: Value = serde_json::from_slice(&read).expect("JSON");
            assert!(read == expected, "{count} of {bytes}");
        }
    }

    /// Would fail if pages that nobody reads were not counted, or small ones had to wait for them.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_read_is_counted() {
        let bodies = BodyBudget::new(1 << 20, 1 << 20);
        let large = || page(20, PIECE_BYTES, None);
        let held = ListBody::of(large(), &bodies).await.expect("room");
        let unread = held.body();
        let others = bodies.decoding();
        assert!(!others.hold(2 << 20), "the page holds what is there");
        drop(others);
        assert!(ListBody::of(page(3, 10, None), &bodies).await.is_ok());
        drop(unread);
        assert!(bodies.decoding().hold(2 << 20));
    }
}
