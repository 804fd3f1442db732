//! Content encodings: one layer, decompressed within limits that hold before memory is taken.
//!
//! Snappy states its length up front: it is checked against the limit, and against 40 times the body: what states more
//! is no snappy block. The others are streamed against the limit, and stop where they give far more than they take
//! (`expansion_limit`).

mod expansion_limit;
mod inflate;

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

pub use inflate::Inflate;

use crate::error::{Error, Result};
use crate::wire::put_varint;
use expansion_limit::{CountingReader, Guard, Ratio};

/// Highest ratio that a snappy block may declare (a copy of 64 bytes takes 3, so real ones stay below 22).
const SNAPPY_RATIO_MAX: usize = 40;

/// A length at the start of a snappy block that the bytes after it cannot give.
#[derive(Debug, thiserror::Error)]
#[error("its header states {declared} bytes, more than {have} bytes of snappy can hold")]
struct SnappyHeader {
    declared: u64,
    have: usize,
}

/// Largest zstd window, as power of two: what RFC 8878 asks every decoder to support. A frame may ask for up to
/// 128 MiB, before it has given a byte.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A content encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Not compressed: no `Content-Encoding`, `identity`, or `none`, which is not registered, but accepted by other servers.
    Identity,
    /// Snappy, block format.
    Snappy,
    /// Gzip, several members allowed.
    Gzip,
    /// Zlib, or deflate without a header, which some senders give under the same name.
    Deflate,
    /// Zstandard, with windows of 8 MiB at most.
    Zstd,
}

impl Encoding {
    /// Reads a `Content-Encoding` header; `None` and the empty text are `Identity`.
    ///
    /// # Errors
    /// Unsupported: unknown or more than one layer.
    pub fn from_header(header: Option<&str>) -> Result<Self> {
        let name = header.unwrap_or_default().trim();
        let known = [
            ("", Self::Identity),
            ("identity", Self::Identity),
            ("none", Self::Identity),
            ("snappy", Self::Snappy),
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("deflate", Self::Deflate),
            ("zstd", Self::Zstd),
        ];
        let found = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, encoding)| *encoding).ok_or_else(|| Error::UnsupportedEncoding(cut(name)))
    }

    /// Gives the name as in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }
}

/// Cuts a header for an error text.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Asked for memory before it is taken: for so many bytes in all. Says whether there is.
pub type Room<'r> = dyn FnMut(usize) -> bool + 'r;

/// Decompresses a body to at most `limit_bytes`.
///
/// # Errors
/// TooLarge: above the limit or the ratio. Invalid: not of this encoding. Unavailable: there is no room.
pub fn decompress<'b>(
    encoding: Encoding,
    body: &'b [u8],
    limit_bytes: usize,
    room: &mut Room<'_>,
) -> Result<Cow<'b, [u8]>> {
    match encoding {
        Encoding::Identity if body.len() > limit_bytes => Err(too_large(limit_bytes)),
        Encoding::Identity => Ok(Cow::Borrowed(body)),
        Encoding::Snappy => snappy(body, limit_bytes, room).map(Cow::Owned),
        _ => stream(encoding, body, limit_bytes, room).map(Cow::Owned),
    }
}

/// Compresses what is kept here and read by [`unpack`] only.
///
/// # Errors
/// Internal: there is no memory for it.
pub fn pack(data: &[u8]) -> quiver_types::Result<Vec<u8>> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    zstd::bulk::compress(data, 0).map_err(|e| quiver_types::Error::internal("cannot compress an answer").with_source(e))
}

/// Gives what was packed. Not for what others send: it has no limit.
///
/// # Errors
/// Internal: it was not packed here.
pub fn unpack(data: &[u8]) -> quiver_types::Result<Vec<u8>> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    zstd::stream::decode_all(data).map_err(|e| quiver_types::Error::internal("cannot read an answer").with_source(e))
}

/// Compresses as snappy's block format does, in pieces that are made when they are asked for: the length of the whole,
/// then parts that know nothing of each other.
///
/// # Errors
/// TooLarge: the format ends at 4 GiB.
pub fn snappy_pieces(data: Vec<u8>) -> Result<impl Iterator<Item = Vec<u8>> + Send> {
    if u32::try_from(data.len()).is_err() {
        return Err(too_large(u32::MAX as usize));
    }
    let mut head = Vec::with_capacity(5);
    put_varint(&mut head, data.len() as u64);
    let (mut encoder, mut at) = (snap::raw::Encoder::new(), 0);
    let blocks = std::iter::from_fn(move || {
        let block = &data[at..data.len().min(at + SNAPPY_BLOCK_BYTES)];
        at += block.len();
        let mut packed = (!block.is_empty()).then(|| encoder.compress_vec(block).ok()).flatten()?;
        // The length of the block alone, which stands once for all of them.
        let length = packed.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        packed.drain(..length);
        Some(packed)
    });
    Ok(std::iter::once(head).chain(blocks))
}

/// Bytes that the format packs by themselves.
const SNAPPY_BLOCK_BYTES: usize = 64 << 10;

/// Decompresses a body of any length while it comes. Memory stays within the window of the encoding, so a limit of the
/// whole is up to the reader; a body that gives far more than it takes ends with an error, see [`fault`].
///
/// # Errors
/// Unsupported: snappy, whose block format has no stream. Invalid: not of this encoding. Reading gives further errors.
pub fn reader<'a>(encoding: Encoding, body: impl BufRead + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    let (ratio, mut body) = Ratio::of(body);
    Ok(match encoding {
        Encoding::Identity => Box::new(body),
        Encoding::Snappy => return Err(Error::UnsupportedEncoding("snappy".to_owned())),
        Encoding::Gzip => Box::new(Guard::new(flate2::bufread::MultiGzDecoder::new(body), ratio)),
        Encoding::Deflate => {
            if has_zlib_header(body.fill_buf().map_err(|e| fault(encoding, e))?) {
                Box::new(Guard::new(flate2::bufread::ZlibDecoder::new(body), ratio))
            } else {
                Box::new(Guard::new(flate2::bufread::DeflateDecoder::new(body), ratio))
            }
        }
        Encoding::Zstd => Box::new(Guard::new(zstd_decoder(body).map_err(|e| fault(encoding, e))?, ratio)),
    })
}

fn zstd_decoder<R: BufRead>(
    body: CountingReader<R>,
) -> io::Result<zstd::stream::read::Decoder<'static, CountingReader<R>>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// Makes an error of what reading a compressed body gave.
pub fn fault(encoding: Encoding, source: io::Error) -> Error {
    match expansion_limit::limit_of(&source) {
        Some(limit_bytes) => too_large(limit_bytes),
        None => Error::Corrupt { encoding: encoding.name(), source: Box::new(source) },
    }
}

fn too_large(limit_bytes: usize) -> Error {
    Error::TooLarge { what: "body after decompression", limit_bytes }
}

fn has_zlib_header(body: &[u8]) -> bool {
    matches!(body, [cmf, flg, ..] if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flg)).is_multiple_of(31))
}

fn snappy(body: &[u8], limit_bytes: usize, room: &mut Room<'_>) -> Result<Vec<u8>> {
    let corrupt = |source| Error::Corrupt { encoding: "snappy", source: Box::new(source) };
    // The length is read here, not by the crate: a varint that states more than 32 bits is a size, not a syntax error.
    let mut declared = 0u64;
    for (i, &byte) in body.iter().enumerate().take(10) {
        declared |= u64::from(byte & 0x7f).checked_shl(7 * i as u32).unwrap_or(0);
        if byte < 0x80 {
            break;
        }
    }
    // Most bodies that state more than they can hold are not snappy at all (a sender that forgot to compress), and no
    // limit would help them.
    if declared > body.len().saturating_mul(SNAPPY_RATIO_MAX) as u64 && !body.is_empty() {
        let source = Box::new(SnappyHeader { declared, have: body.len() });
        return Err(Error::Corrupt { encoding: "snappy", source });
    }
    if declared > limit_bytes as u64 {
        return Err(too_large(limit_bytes));
    }
    if !room(declared as usize) {
        return Err(Error::NoRoom);
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(corrupt)
}

fn stream(encoding: Encoding, body: &[u8], limit_bytes: usize, room: &mut Room<'_>) -> Result<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    let mut step = body.len().saturating_mul(4).clamp(1 << 12, 1 << 20);
    let mut decoder = reader(encoding, body)?;
    loop {
        // One byte more than allowed tells "just fits" from "does not".
        let more = step.min((limit_bytes + 1).saturating_sub(out.len()));
        if !room(out.len() + more) {
            return Err(Error::NoRoom);
        }
        out.reserve_exact(more);
        let read = (&mut decoder).take(more as u64).read_to_end(&mut out).map_err(|e| fault(encoding, e))?;
        if out.len() > limit_bytes {
            return Err(too_large(limit_bytes));
        }
        if read < more {
            return Ok(out);
        }
        step = out.len();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use quiver_types::ErrorKind;

    use super::*;

    const LIMIT: usize = 64 << 20;

    /// With room for anything.
    fn decompress(encoding: Encoding, body: &[u8], limit_bytes: usize) -> Result<Cow<'_, [u8]>> {
        super::decompress(encoding, body, limit_bytes, &mut |_| true)
    }

    #[test]
    fn room_is_asked_for_before_it_is_taken() {
        let data = vec![7u8; 1 << 20];
        for encoding in [Encoding::Snappy, Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
            let body = encode(encoding, &data);
            let mut asked = 0;
            let got = super::decompress(encoding, &body, LIMIT, &mut |bytes| {
                asked = bytes;
                true
            });
            assert_eq!(&*got.unwrap(), &data[..]);
            assert!((1 << 20..=2 << 20).contains(&asked), "{encoding:?}: {asked}");
            let refused = super::decompress(encoding, &body, LIMIT, &mut |bytes| bytes < 1 << 19).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{encoding:?}");
        }
    }

    fn encode(encoding: Encoding, data: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Identity => data.to_vec(),
            Encoding::Snappy => snap::raw::Encoder::new().compress_vec(data).unwrap(),
            Encoding::Gzip => {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
                e.write_all(data).unwrap();
                e.finish().unwrap()
            }
            Encoding::Deflate => {
                let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
                e.write_all(data).unwrap();
                e.finish().unwrap()
            }
            Encoding::Zstd => zstd::stream::encode_all(data, 1).unwrap(),
        }
    }

    const ALL: [Encoding; 5] =
        [Encoding::Identity, Encoding::Snappy, Encoding::Gzip, Encoding::Deflate, Encoding::Zstd];

    #[test]
    fn snappy_in_pieces_is_one_block() {
        for bytes in [0_usize, 1, 65_535, 65_536, 65_537, 300_000] {
            let data: Vec<u8> = (0..bytes).map(|i| (i % 977 % 256) as u8).collect();
            let pieces: Vec<Vec<u8>> = snappy_pieces(data.clone()).unwrap().collect();
            assert_eq!(pieces.len(), 1 + bytes.div_ceil(SNAPPY_BLOCK_BYTES), "{bytes}");
            let whole = pieces.concat();
            assert_eq!(&*decompress(Encoding::Snappy, &whole, LIMIT).unwrap(), &data[..], "{bytes}");
        }
    }

    #[test]
    fn round_trips_and_cuts() {
        let data: Vec<u8> = (0..20_000u32).flat_map(|i| (i % 977).to_le_bytes()).collect();
        for encoding in ALL {
            let body = encode(encoding, &data);
            assert_eq!(&*decompress(encoding, &body, LIMIT).unwrap(), &data[..], "{encoding:?}");
            assert_eq!(&*decompress(encoding, &body, data.len()).unwrap(), &data[..], "{encoding:?}");
            let kind = decompress(encoding, &body, data.len() - 1).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::TooLarge, "{encoding:?}");
            if encoding != Encoding::Identity {
                for len in (0..body.len()).step_by(97) {
                    assert!(decompress(encoding, &body[..len], LIMIT).is_err(), "{encoding:?} cut at {len}");
                }
            }
        }
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        raw.write_all(&data).unwrap();
        assert_eq!(&*decompress(Encoding::Deflate, &raw.finish().unwrap(), LIMIT).unwrap(), &data[..]);
    }

    #[test]
    fn bombs() {
        let zeros = vec![0u8; 32 << 20];
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
            let kind = decompress(encoding, &encode(encoding, &zeros), LIMIT).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::TooLarge, "{encoding:?}");
        }
        let check = |body: &[u8], kind| assert_eq!(decompress(Encoding::Snappy, body, LIMIT).unwrap_err().kind(), kind);
        // Declares 4 GiB, 64 GiB, 41 x the body, nothing at all: no snappy of that length can hold it.
        check(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], ErrorKind::Invalid);
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0], ErrorKind::Invalid);
        check(&[124, 0, 0], ErrorKind::Invalid);
        check(&[120, 0, 0], ErrorKind::Invalid);
        check(&[], ErrorKind::Invalid);
        check(&[0xff; 20], ErrorKind::Invalid);
        let told = decompress(Encoding::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], LIMIT).unwrap_err().to_string();
        let text = "body is not valid snappy: its header states 4294967295 bytes, more than 7 bytes of snappy can hold";
        assert_eq!(told, text);
        // What could be real is held against the limit.
        let kind = decompress(Encoding::Snappy, &encode(Encoding::Snappy, &zeros), 1 << 20).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::TooLarge);
        assert_eq!(&*decompress(Encoding::Snappy, &[0], LIMIT).unwrap(), b"");
        // A zstd frame that asks for a window of 128 MiB.
        let mut e = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        e.window_log(27).unwrap();
        e.write_all(&[7; 100]).unwrap();
        assert_eq!(decompress(Encoding::Zstd, &e.finish().unwrap(), LIMIT).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn headers() {
        let check = |header, expected| assert_eq!(Encoding::from_header(header).ok(), expected, "{header:?}");
        check(None, Some(Encoding::Identity));
        check(Some(" GZIP "), Some(Encoding::Gzip));
        check(Some("snappy"), Some(Encoding::Snappy));
        check(Some("gzip, gzip"), None);
        check(Some("none"), Some(Encoding::Identity));
        check(Some("br"), None);
    }
}
