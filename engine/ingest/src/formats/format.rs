//! An ingest format: its paths, content types, encodings and decoder.

use std::fmt;

use crate::content_encoding::{self, Encoding, Room};
use crate::context::Context;
use crate::decode_memory;
use crate::decoded::DecodedMetrics;
use crate::error::{Error, Result};

/// A content type that a format reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentType {
    /// Media type, lower case.
    pub media: &'static str,
    /// Value of the parameter `proto`; an empty text means that it is absent, `None` accepts any.
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
    /// Content types that it accepts. Formats that share a path are told apart by these.
    pub content_types: &'static [ContentType],
    /// Whether a request without `Content-Type` is of this format.
    pub is_default: bool,
    /// Encodings besides `Identity`.
    pub encodings: &'static [Encoding],
    /// The encoding of a request without `Content-Encoding`.
    pub default_encoding: Encoding,
    /// Decodes a decompressed body.
    pub decode: fn(&[u8], &Context<'_>) -> Result<DecodedMetrics>,
}

impl Format {
    /// Decompresses and decodes a body.
    ///
    /// # Errors
    ///
    /// Unsupported: an encoding that the format does not allow. TooLarge: a limit is exceeded. Invalid: a body of
    /// another form. Unavailable: no memory for the result.
    pub fn decode_request(
        &self,
        content_encoding: Option<&str>,
        body: &[u8],
        ctx: &Context<'_>,
        room: &mut Room<'_>,
    ) -> Result<DecodedMetrics> {
        let encoding = match content_encoding {
            None => self.default_encoding,
            Some(header) if header.trim().is_empty() => self.default_encoding,
            header => Encoding::from_header(header)?,
        };
        if encoding != self.default_encoding && !self.encodings.contains(&encoding) {
            return Err(Error::UnsupportedEncoding(encoding.name().to_owned()));
        }
        // Snappy states how large the body is before there is any of it. Its batch is about as large, or half as much again,
        // and grows while the body is there. In this order, as one that waits for its turn to unpack must not keep others
        // from their batches.
        let is_stated = encoding == Encoding::Snappy;
        let room = &mut |bytes: usize| room(bytes) && (!is_stated || decode_memory::hold_ahead(2 * bytes).is_ok());
        let body = content_encoding::decompress(encoding, body, ctx.limits.body_bytes_max, room)?;
        (self.decode)(&body, ctx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use prost::Message;

    use super::*;
    use crate::context::Limits;
    use crate::decode_memory::{DecodeRoom, within};
    use crate::formats::remote_write::FORMAT;
    use crate::formats::testproto as proto;
    use crate::otlp::OtlpOptions;

    /// Room that never becomes free, and how many bytes were requested of it.
    #[derive(Default)]
    struct Full(AtomicUsize);

    impl DecodeRoom for Full {
        fn hold(&self, _bytes: usize) -> bool {
            panic!("nothing is decoded")
        }

        fn hold_ahead(&self, bytes: usize) -> Option<usize> {
            self.0.store(bytes, Relaxed);
            None
        }
    }

    /// Breaks if a body is unpacked, and its batch begun, while the batches of others fill the memory.
    #[test]
    fn a_body_of_stated_length_is_unpacked_once_its_batch_has_room() {
        let message = proto::scrape(1000).encode_to_vec();
        let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
        let (options, delta) = (OtlpOptions::default(), Mutex::default());
        let ctx = Context { limits: Limits::default(), otlp: &options, delta: &delta, now_ms: 0, sender: None };
        let full = Arc::new(Full::default());
        let mut asked = Vec::new();
        let decoded = within(Arc::clone(&full) as Arc<dyn DecodeRoom>, || {
            FORMAT.decode_request(None, &body, &ctx, &mut |bytes| {
                asked.push(bytes);
                true
            })
        });
        assert!(matches!(decoded, Err(Error::NoRoom)));
        assert_eq!(asked, [message.len()]);
        assert!(full.0.load(Relaxed) >= 2 * message.len(), "for both");
    }
}
