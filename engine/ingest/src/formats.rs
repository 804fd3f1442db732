//! The registry of ingest formats: one entry per format, found by path and content type.
//!
//! Streamed text (`exposition`) has no body to decode as a whole and is driven by its endpoint instead.

mod native_histogram;
pub mod otlp_json;
pub mod otlp_metrics;
pub mod remote_write;
pub mod remote_write2;
#[cfg(test)]
pub(crate) mod testproto;

use std::fmt;
use std::sync::{Arc, Mutex};

use quiver_types::Millis;

use crate::codec::{self, Encoding, Room};
use crate::decoded::Decoded;
use crate::error::{Error, Result};
use crate::otlp::{DeltaState, OtlpOptions};
use crate::sender::Sender;

/// All formats of metrics; the router makes their paths out of this list.
pub static FORMATS: &[Format] = &[remote_write::FORMAT, remote_write2::FORMAT, otlp_metrics::FORMAT, otlp_json::FORMAT];

/// Bounds of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body after decompression.
    pub body_bytes_max: usize,
    /// Largest batch in memory: a few bytes on the wire can stand for many.
    pub batch_bytes_max: usize,
    /// Points of OTLP before this time are refused one by one: the store would count samples, of which a point may have
    /// many.
    pub earliest_ms: Millis,
    /// Points of OTLP after this time are refused in the same way.
    pub latest_ms: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes_max: 64 << 20, batch_bytes_max: 128 << 20, earliest_ms: Millis::MIN, latest_ms: Millis::MAX }
    }
}

/// What a decoder knows besides the body.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Bounds of the request.
    pub limits: Limits,
    /// How OTLP becomes series.
    pub otlp: &'a OtlpOptions,
    /// Sums of OTLP delta series; locked only by requests that hold delta points.
    pub delta: &'a Mutex<DeltaState>,
    /// The time of the request.
    pub now_ms: Millis,
    /// Whose series are taken; none: all.
    pub sender: Option<&'a Arc<Sender>>,
}

/// A content type that a format reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentType {
    /// Media type, lower case.
    pub media: &'static str,
    /// Value of the parameter `proto`; the empty text stands for its absence; `None` for any.
    pub proto: Option<&'static str>,
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.media)?;
        self.proto.filter(|proto| !proto.is_empty()).map_or(Ok(()), |proto| write!(f, ";proto={proto}"))
    }
}

/// An ingest format.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Name for metrics and logs.
    pub name: &'static str,
    /// Paths on the main port.
    pub paths: &'static [&'static str],
    /// Content types that it reads; one path may have several formats, told apart by these.
    pub content_types: &'static [ContentType],
    /// Whether a request without `Content-Type` is of this format.
    pub is_default: bool,
    /// Encodings besides `Identity`.
    pub encodings: &'static [Encoding],
    /// The encoding of a request without `Content-Encoding`.
    pub default_encoding: Encoding,
    /// Decodes a body that is decompressed.
    pub decode: fn(&[u8], &Context<'_>) -> Result<Decoded>,
}

impl Format {
    /// Decompresses and decodes a body.
    ///
    /// # Errors
    /// Unsupported: an encoding that the format does not allow. TooLarge: a limit. Invalid: a body of another form.
    /// Unavailable: there is no room for what it becomes.
    pub fn decode_request(
        &self,
        content_encoding: Option<&str>,
        body: &[u8],
        ctx: &Context<'_>,
        room: &mut Room<'_>,
    ) -> Result<Decoded> {
        let encoding = match content_encoding {
            None => self.default_encoding,
            Some(header) if header.trim().is_empty() => self.default_encoding,
            header => Encoding::from_header(header)?,
        };
        if encoding != self.default_encoding && !self.encodings.contains(&encoding) {
            return Err(Error::UnsupportedEncoding(encoding.name().to_owned()));
        }
        let body = codec::decompress(encoding, body, ctx.limits.body_bytes_max, room)?;
        (self.decode)(&body, ctx)
    }
}

/// Finds the format of a request.
///
/// # Errors
/// NotFound: no format has this path. Unsupported: none of its formats has this content type.
pub fn find(path: &str, content_type: Option<&str>) -> Result<&'static Format> {
    let at_path = || FORMATS.iter().filter(|f| f.paths.contains(&path));
    if at_path().next().is_none() {
        return Err(Error::UnknownPath(codec::cut(path)));
    }
    let header = content_type.unwrap_or_default().trim();
    let mut parts = header.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let proto = parts
        .filter_map(|p| p.split_once('='))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case("proto"))
        .map_or("", |(_, value)| value.trim().trim_matches('"'));
    let matches = |t: &ContentType| t.media == media && t.proto.is_none_or(|p| p == proto);
    let found = at_path().find(|f| if header.is_empty() { f.is_default } else { f.content_types.iter().any(matches) });
    found.ok_or_else(|| {
        let known = at_path().flat_map(|f| f.content_types).map(ToString::to_string);
        Error::UnsupportedType { given: codec::cut(header), known: known.collect::<Vec<_>>().join(" or ") }
    })
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn registry() {
        for (i, f) in FORMATS.iter().enumerate() {
            assert!(FORMATS[..i].iter().all(|other| other.name != f.name), "{} twice", f.name);
            assert!(f.encodings.contains(&f.default_encoding) || f.default_encoding == Encoding::Identity);
        }
        let check = |path: &str, content_type: Option<&str>, expected: Result<&str, ErrorKind>| {
            let found = find(path, content_type).map(|f| f.name).map_err(|e| e.kind());
            assert_eq!(found, expected, "{path} {content_type:?}");
        };
        let write = "/metrics-api/api/v1/write";
        check(write, None, Ok("remote_write"));
        check(write, Some("application/x-protobuf"), Ok("remote_write"));
        check(write, Some("application/x-protobuf;proto=prometheus.WriteRequest"), Ok("remote_write"));
        check(write, Some("Application/X-Protobuf; proto=\"io.prometheus.write.v2.Request\""), Ok("remote_write2"));
        check(write, Some("application/x-protobuf;proto=other"), Err(ErrorKind::Unsupported));
        check(write, Some("application/json"), Err(ErrorKind::Unsupported));
        check("/metrics-api/api/v1/other", None, Err(ErrorKind::NotFound));
        for path in otlp_metrics::PATHS {
            check(path, Some("application/x-protobuf"), Ok("otlp_metrics"));
            check(path, Some("application/json; charset=utf-8"), Ok("otlp_metrics_json"));
            check(path, None, Err(ErrorKind::Unsupported));
        }
        let told = find(write, Some("application/json")).unwrap_err().to_string();
        let known = "application/x-protobuf or application/x-protobuf;proto=prometheus.WriteRequest or ";
        assert!(told.starts_with(&format!("unsupported content type `application/json`; send {known}")), "{told}");
        let told = find(otlp_metrics::PATHS[0], Some("text/plain")).unwrap_err().to_string();
        assert!(told.ends_with("; send application/x-protobuf or application/protobuf or application/json"), "{told}");
    }

    #[test]
    fn encodings() {
        let (options, delta) = (OtlpOptions::default(), Mutex::default());
        let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
        let check = |f: &Format, encoding, body: &[u8], expected: Result<(), ErrorKind>| {
            let got = f.decode_request(encoding, body, &ctx, &mut |_| true).map(drop).map_err(|e| e.kind());
            assert_eq!(got, expected, "{} {encoding:?}", f.name);
        };
        check(&remote_write::FORMAT, None, &[0], Ok(()));
        check(&remote_write::FORMAT, Some(""), &[0], Ok(()));
        check(&remote_write::FORMAT, Some("snappy"), &[0], Ok(()));
        check(&remote_write::FORMAT, Some("zstd"), &zstd::stream::encode_all(&[][..], 1).unwrap(), Ok(()));
        check(&remote_write::FORMAT, Some("gzip"), &[0], Err(ErrorKind::Unsupported));
        check(&remote_write::FORMAT, Some("snappy, gzip"), &[0], Err(ErrorKind::Unsupported));
        check(&remote_write::FORMAT, None, b"\x05hello", Err(ErrorKind::Invalid));
        check(&otlp_json::FORMAT, None, b"{}", Ok(()));
        check(&otlp_json::FORMAT, Some("snappy"), b"{}", Err(ErrorKind::Unsupported));
    }
}
