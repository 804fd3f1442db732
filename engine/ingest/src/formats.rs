//! The registry of ingest formats: one entry per format, found by path and content type.
//!
//! Streamed text (`exposition`) has no body to decode as a whole and is driven by its endpoint instead.

mod format;
mod native_histogram;
pub mod otlp_json;
pub mod otlp_metrics;
pub mod remote_write;
pub mod remote_write2;
#[cfg(test)]
pub(crate) mod testproto;

pub use format::{ContentType, Format};

use crate::content_encoding;
use crate::error::{Error, Result};

/// All formats of metrics; the router makes their routes from this list.
pub static FORMATS: &[Format] = &[remote_write::FORMAT, remote_write2::FORMAT, otlp_metrics::FORMAT, otlp_json::FORMAT];

/// Finds the format of a request.
///
/// # Errors
/// NotFound: no format has this path. Unsupported: none of its formats has this content type.
pub fn find(path: &str, content_type: Option<&str>) -> Result<&'static Format> {
    let at_path = || FORMATS.iter().filter(|f| f.paths.contains(&path));
    if at_path().next().is_none() {
        return Err(Error::UnknownPath(content_encoding::cut(path)));
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
        Error::UnsupportedType { given: content_encoding::cut(header), known: known.collect::<Vec<_>>().join(" or ") }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use quiver_types::ErrorKind;

    use super::*;
    use crate::content_encoding::Encoding;
    use crate::context::{Context, Limits};
    use crate::otlp::OtlpOptions;

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
