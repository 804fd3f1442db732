//! Answers that are lists in JSON: what they are made of counts in the query's memory, their text is made as it is sent.

use axum::response::Response;
use http::{HeaderValue, header};
use quiver_logsql::kernels::values::push_json_string;
use quiver_query::Collected;

use crate::encode::pieces::{PIECE_BYTES, while_read};

/// Bytes that a text takes in a collection, with what surrounds it there.
pub(super) fn text_bytes(text: &str) -> usize {
    text.len() + ENTRY_BYTES
}

/// What an entry of a map or list takes beside its texts, about.
pub(super) const ENTRY_BYTES: usize = 64;

/// A text in JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json_string(&mut out, text);
    out
}

/// Sends `head`, items with commas between, `tail`; gives the memory back when the last of it was made, or the receiver
/// is gone.
pub(super) fn list(
    head: &'static str,
    items: impl Iterator<Item = String> + Send + 'static,
    tail: &'static str,
    memory: Collected,
) -> Response {
    let mut items = items.enumerate();
    let mut head = Some(head);
    let body = while_read(move |piece| {
        let _memory = &memory;
        piece.extend_from_slice(head.take().unwrap_or_default().as_bytes());
        while piece.len() < PIECE_BYTES {
            let Some((i, item)) = items.next() else {
                piece.extend_from_slice(tail.as_bytes());
                return true;
            };
            piece.extend_from_slice(if i > 0 { b"," } else { b"" });
            piece.extend_from_slice(item.as_bytes());
        }
        false
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
