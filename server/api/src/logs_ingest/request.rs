//! What all log endpoints share: parameters for the handling of fields, and the content encoding.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, header};
use quiver_ingest::content_encoding::Room;
use quiver_ingest::logs::{FieldOptions, LogsContext};
use quiver_ingest::{Encoding, content_encoding};
use quiver_store::RequestId;
use quiver_types::{Domain, Error, Result};

use super::idempotency::request_id;
use crate::forbidden_records;
use crate::state::AppState;

/// What the head of a request says about its body.
#[derive(Debug)]
pub(super) struct Intake {
    /// Everything that decoders need besides the body.
    pub(super) ctx: LogsContext,
    /// The compression of the body; `None` if the request does not state one.
    pub(super) encoding: Option<Encoding>,
    /// Parameters of the query string.
    pub(super) params: Vec<(String, String)>,
    /// The `Idempotency-Key`; taken by the code that stores the request.
    pub(super) id: Option<RequestId>,
}

impl Intake {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// Invalid: a bad parameter or key. Unsupported: an unknown encoding.
    pub(super) fn read(state: &AppState, head: &Parts) -> Result<Self> {
        let params: Vec<(String, String)> =
            url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let encoding = text(&head.headers, header::CONTENT_ENCODING.as_str()).filter(|v| !v.trim().is_empty());
        let encoding = encoding.map(|name| Encoding::from_header(Some(name))).transpose().map_err(ours)?;
        let settings = &state.settings.logs;
        let find = |name: &str| get(&params, name);
        let options =
            FieldOptions::read(find, |name| text(&head.headers, name), &settings.service_fields).map_err(ours)?;
        Ok(Self { ctx: context(state, options), encoding, params, id: request_id(state, head)? })
    }

    /// Gives a parameter of the query string.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        get(&self.params, name).filter(|v| !v.is_empty())
    }

    /// Decompresses a whole body.
    ///
    /// # Errors
    /// TooLarge, Invalid, Unavailable: see [`content_encoding::decompress`].
    pub(super) fn decompress<'a>(
        &self,
        body: &'a [u8],
        bytes_max: usize,
        room: &mut Room<'_>,
    ) -> Result<std::borrow::Cow<'a, [u8]>> {
        let encoding = self.encoding.unwrap_or(Encoding::Identity);
        if body.is_empty() && encoding != Encoding::Snappy {
            return Ok(body.into());
        }
        content_encoding::decompress(encoding, body, bytes_max, room).map_err(ours)
    }
}

/// Makes the context of decoders.
pub(super) fn context(state: &AppState, options: FieldOptions) -> LogsContext {
    let settings = &state.settings.logs;
    let options = FieldOptions { default_msg: Arc::clone(&settings.default_message), ..options };
    let now_ns = state.clock.now_ms().saturating_mul(1_000_000);
    LogsContext {
        options: Arc::new(options),
        limits: settings.limits,
        now_ns,
        future_max_ns: settings.accept_future_ns.map_or(i64::MAX, |future| now_ns.saturating_add(future)),
        sender: forbidden_records::sender(state.ingest_access(Domain::Logs), || Arc::clone(&settings.service_fields)),
    }
}

/// Converts an error of the decoders.
pub(super) fn ours(error: quiver_ingest::Error) -> Error {
    error.into()
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok())
}

fn get<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
    params.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_are_texts_or_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(text(&headers, "vl-msg-field"), None);
        headers.insert("vl-msg-field", HeaderValue::from_bytes("größe".as_bytes()).unwrap());
        headers.insert("vl-time-field", HeaderValue::from_bytes(&[0xff]).unwrap());
        assert_eq!(text(&headers, "VL-Msg-Field"), Some("größe"));
        assert_eq!(text(&headers, "vl-time-field"), None, "it is no UTF-8");
    }

    #[test]
    fn the_first_of_parameters_with_one_name_counts() {
        let params = [("a", "1"), ("b", ""), ("a", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (name, expected) in [("a", Some("1")), ("b", Some("")), ("A", None)] {
            assert_eq!(get(&params, name), expected, "{name}");
        }
    }
}
