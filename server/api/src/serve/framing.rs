//! Finds where an HTTP/1 body ends: bytes after it are the next head and are checked, bytes within it are not.
//!
//! Only bodies that hyper reads to their end matter: it closes the connection after one that it cannot read.

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// This many bytes.
    Length(u64),
    /// Chunks, up to an empty one; the position within the current chunk.
    Chunked(Chunk),
}

/// Where in a chunk the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// In its size; the value of the digits so far.
    Size(u64),
    /// After the size, in the same line; the size.
    Extension(u64),
    /// In its data; the bytes that are left.
    Data(u64),
    /// In the line end after its data.
    Behind,
    /// After the last chunk; whether the current line is empty so far.
    Trailer(bool),
}

impl BodyFraming {
    /// Reads the framing of a body from the fields of a head, and counts the fields that state it.
    pub(super) fn of(head: &[u8]) -> (usize, Option<Self>) {
        let (mut stated, mut body) = (0, None);
        for line in head.split(|b| *b == b'\n').skip(1) {
            let mut parts = line.splitn(2, |b| *b == b':');
            let mut part = || parts.next().unwrap_or_default().trim_ascii();
            let (name, value) = (part(), part());
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                (stated, body) = (stated + 1, Some(Self::Chunked(Chunk::Size(0))));
            } else if name.eq_ignore_ascii_case(b"content-length") {
                stated += 1;
                let bytes =
                    std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0);
                body = body.or(bytes.map(Self::Length));
            }
        }
        (stated, body)
    }

    /// Skips bytes of the body. Returns those after its end, or `None` if the end has not arrived.
    pub(super) fn pass<'a>(&mut self, came: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Length(left) => {
                let behind = skip(left, came);
                (*left == 0).then_some(behind)
            }
            Self::Chunked(chunk) => chunk.pass(came),
        }
    }
}

impl Chunk {
    fn pass<'a>(&mut self, mut came: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            if let Self::Data(left) = self {
                came = skip(left, came);
                if *left > 0 {
                    return None;
                }
                *self = Self::Behind;
            }
            let (byte, behind) = came.split_first()?;
            came = behind;
            *self = match (*self, *byte) {
                (Self::Size(0) | Self::Extension(0) | Self::Trailer(false), b'\n') => Self::Trailer(true),
                (Self::Size(bytes) | Self::Extension(bytes), b'\n') => Self::Data(bytes),
                (Self::Size(bytes), digit) if digit.is_ascii_hexdigit() => {
                    let digit = char::from(digit).to_digit(16).unwrap_or_default();
                    Self::Size(bytes.saturating_mul(16).saturating_add(digit.into()))
                }
                (Self::Size(bytes) | Self::Extension(bytes), _) => Self::Extension(bytes),
                (Self::Behind, b'\n') => Self::Size(0),
                (Self::Trailer(true), b'\n') => return Some(came),
                (Self::Trailer(_), byte) if byte != b'\r' => Self::Trailer(false),
                (same, _) => same,
            };
        }
    }
}

/// Skips up to `left` bytes.
fn skip<'a>(left: &mut u64, came: &'a [u8]) -> &'a [u8] {
    let past = usize::try_from(*left).unwrap_or(usize::MAX).min(came.len());
    *left -= past as u64;
    &came[past..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_what_follows() {
        let check = |fields: &str, stated: usize, body: Option<BodyFraming>| {
            let head = format!("POST /a:b HTTP/1.1\r\n{fields}\r\n\r\n");
            assert_eq!(BodyFraming::of(head.as_bytes()), (stated, body), "{fields}");
        };
        let chunks = Some(BodyFraming::Chunked(Chunk::Size(0)));
        check("Host: x", 0, None);
        check("X: content-length: 3", 0, None);
        check("content-LENGTH:3", 1, Some(BodyFraming::Length(3)));
        check("Content-Length: 0", 1, None);
        check("Content-Length: many", 1, None);
        check("Transfer-Encoding: chunked", 1, chunks);
        check("Transfer-Encoding: chunked\r\nContent-Length: 3", 2, chunks);
        check("Content-Length: 3\r\nTransfer-Encoding: chunked", 2, chunks);
        check("Content-Length: 3\r\nContent-Length: 4", 2, Some(BodyFraming::Length(3)));
    }

    /// The end is found however the bytes are cut into pieces, and what follows is not consumed.
    #[test]
    fn bodies_end_where_they_end() {
        let check = |framing: BodyFraming, body: &str| {
            let whole = format!("{body}GET / HTTP/1.1");
            for piece in 1..=whole.len() {
                let (mut left, mut at) = (framing, 0);
                let behind = whole.as_bytes().chunks(piece).find_map(|came| {
                    at += came.len();
                    left.pass(came).map(<[u8]>::len)
                });
                assert_eq!(behind.map(|n| at - n), Some(body.len()), "{body:?} in pieces of {piece}");
            }
        };
        let chunks = BodyFraming::Chunked(Chunk::Size(0));
        check(BodyFraming::Length(5), "\r\n\r\n0");
        check(chunks, "0\r\n\r\n");
        check(chunks, "1\r\nx\r\n000\r\n\r\n");
        check(chunks, "1a;name=\"1\"\r\n0\r\n\r\n\r\n0123456789abcdefghi\r\n0;x\r\n\r\n");
        check(chunks, "2 \r\n\r\n\r\n0\r\nA: 1\r\nB: \r\n\r\n");
    }
}
