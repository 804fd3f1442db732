//! An ingest format: its paths, content types, encodings and decoder.

use std::fmt;

use crate::content_encoding::{self, Encoding, Room};
use crate::context::Context;
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
        let body = content_encoding::decompress(encoding, body, ctx.limits.body_bytes_max, room)?;
        (self.decode)(&body, ctx)
    }
}
