//! Responses: errors, and JSON lists, whose contents are accounted to the query's memory and whose text is made while
//! it is sent.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use quiver_logsql::kernels::values::push_json_string;
use quiver_query::QueryReservation;
use quiver_types::Error;

use crate::encode::body_pieces::{PIECE_BYTES, while_read};
use crate::encode::prometheus::error_response;
use crate::error::{plain_error, status_of};

/// Makes a response of an error, and logs it: a line of text, but Prometheus' envelope with status 422. Grafana's data
/// source shows the text of a 400, and takes that envelope, and nothing else, for the body of a 422.
pub(super) fn error(error: &Error, route: &str) -> Response {
    if status_of(error.kind) == StatusCode::UNPROCESSABLE_ENTITY {
        error_response(error, route)
    } else {
        plain_error(error, route)
    }
}

/// Bytes that a string takes within a collection.
pub(super) fn text_bytes(text: &str) -> usize {
    text.len() + ENTRY_BYTES
}

/// Approximate bytes of a map or list entry besides its strings.
pub(super) const ENTRY_BYTES: usize = 64;

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json_string(&mut out, text);
    out
}

/// Sends `head`, items separated by commas, and `tail`; releases the memory after the last of it, or when the client
/// disconnects.
pub(super) fn list(
    head: &'static str,
    items: impl Iterator<Item = String> + Send + 'static,
    tail: &'static str,
    memory: QueryReservation,
) -> Response {
    long_list(head, items.map(std::iter::once), tail, memory)
}

/// Like [`list`], with items that are texts one after the other, so that none of them stands in memory as a whole.
pub(super) fn long_list<I: Iterator<Item = String> + Send + 'static>(
    head: &'static str,
    items: impl Iterator<Item = I> + Send + 'static,
    tail: &'static str,
    memory: QueryReservation,
) -> Response {
    let mut items = items.enumerate();
    let mut item: Option<I> = None;
    let mut head = Some(head);
    let body = while_read(move |piece| {
        let _memory = &memory;
        piece.extend_from_slice(head.take().unwrap_or_default().as_bytes());
        while piece.len() < PIECE_BYTES {
            if let Some(text) = item.as_mut().and_then(Iterator::next) {
                piece.extend_from_slice(text.as_bytes());
                continue;
            }
            let Some((i, next)) = items.next() else {
                piece.extend_from_slice(tail.as_bytes());
                return true;
            };
            piece.extend_from_slice(if i > 0 { b"," } else { b"" });
            item = Some(next);
        }
        false
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};

    use super::*;

    #[test]
    fn only_a_422_is_told_in_an_envelope() {
        for (kind, status, form) in [
            (quiver_types::ErrorKind::Invalid, 400, "text/plain; charset=utf-8"),
            (quiver_types::ErrorKind::Execution, 422, "application/json"),
            (quiver_types::ErrorKind::LimitExceeded, 422, "application/json"),
            (quiver_types::ErrorKind::Timeout, 503, "text/plain; charset=utf-8"),
        ] {
            let answer = error(&Error::new(kind, "x"), "/");
            assert_eq!(answer.status().as_u16(), status, "{kind:?}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], form, "{kind:?}");
        }
    }

    #[test]
    fn texts_are_quoted_as_json() {
        for text in ["", "a", "say \"x\"", "back\\slash", "\n\r\t", "\u{0}\u{1f}", "größe", "\u{1f600}", "\u{2028}"] {
            let read: serde_json::Value = serde_json::from_str(&quoted(text)).expect("JSON");
            assert_eq!(read, text);
        }
        assert_eq!((text_bytes(""), text_bytes("größe")), (ENTRY_BYTES, 7 + ENTRY_BYTES), "letters count as bytes");
    }

    /// Lists of any length are complete, and their memory is released at the end.
    #[tokio::test]
    async fn lists_are_made_as_they_are_sent() {
        let engine = QueryEngine::new(&EngineSettings::small(8 << 20)).expect("an engine");
        let ctx = QueryContext::new(quiver_types::Access::full(), Limits::default());
        for count in [0, 1, 2, 30_000] {
            let memory = engine.collected("values", &ctx);
            memory.add(1000).expect("room");
            let response = list("{\"a\":[", (0..count).map(|n| n.to_string()), "]}", memory);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            if count > 20_000 {
                assert_eq!(engine.memory_reserved(), 1000, "what is still to be made");
            }
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let read: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            let expected: Vec<i32> = (0..count).collect();
            assert_eq!(read, serde_json::json!({"a": expected}), "{count}");
            assert_eq!(engine.memory_reserved(), 0, "{count}");
        }
    }
}
