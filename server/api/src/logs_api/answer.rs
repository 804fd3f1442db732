//! Answers that are lists in JSON: what they are made of counts in the query's memory, their text is made as it is sent.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use quiver_logsql::kernels::values::push_json_string;
use quiver_query::Collected;

/// Bytes of text that are made at once, about.
const CHUNK_BYTES: usize = 64 << 10;

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
    let mut text = Some(head.to_owned());
    let mut items = items.enumerate();
    let chunks = std::iter::from_fn(move || {
        let _memory = &memory;
        let mut out = text.take()?;
        loop {
            match items.next() {
                Some((i, item)) => {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&item);
                }
                None => {
                    out.push_str(tail);
                    return Some(Bytes::from(out));
                }
            }
            if out.len() >= CHUNK_BYTES {
                text = Some(String::new());
                return Some(Bytes::from(out));
            }
        }
    });
    let mut chunks = chunks.peekable();
    // Most answers are one short piece, whose length is known.
    let first = chunks.next().unwrap_or_default();
    let body = if first.len() <= 2 * CHUNK_BYTES && chunks.peek().is_none() {
        Body::from(first)
    } else {
        let all = std::iter::once(first).chain(chunks).map(Ok::<_, std::convert::Infallible>);
        Body::from_stream(futures::stream::iter(all))
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
