//! Refuses heads of requests that two parsers could read in two ways, though hyper would accept them: a body whose
//! length is stated twice or hidden below another transfer coding, a path with dot segments or encoded tricks, a
//! target that names another host than `Host`, or no host at all.
//!
//! Memory of heads counts against a budget of all connections: an incomplete head is counted here, a complete one in
//! the share of its request. The position of a head follows from the bodies before it (`framing`), not from which
//! requests are under way: a client may pipeline the next head behind a body or before it has the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

use super::framing::BodyFraming;
use crate::body_memory::Share;
use crate::error::plain;

/// Times that the text of a head counts: hyper doubles the buffer that it reads heads into, and any piece kept of a
/// head keeps its whole buffer alive.
const BUFFER_SHARE: usize = 2;
/// Bytes that a header field takes besides its text.
const FIELD_BYTES: usize = 96;

/// Why a head is refused before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadRefusal {
    /// It is larger than allowed, and its end has not arrived.
    TooLarge,
    /// There is no memory for another incomplete head.
    NoRoom,
}

/// Tracks the heads of an HTTP/1 connection as they arrive, however many are in one read.
#[derive(Debug)]
pub(super) struct Heads {
    text: Vec<u8>,
    bytes_max: usize,
    /// Memory held for the incomplete head.
    share: Share,
    /// What is left of the body that precedes the next head.
    body: Option<BodyFraming>,
    /// How many heads are complete.
    whole: u64,
    /// Number of the first head, counted from 0, that states the length of its body more than once. Counted here
    /// since hyper drops the fields that it does not use.
    twice: Arc<AtomicU64>,
    /// Where in the request line the next byte is.
    line: Line,
    /// Whether no request had a body so far, and nothing followed a head in the same read.
    is_plain: bool,
}

/// Where a byte is, relative to the request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Before the line.
    Before,
    /// In the method or the path.
    Path,
    /// After the question mark.
    Query,
    /// After the line feed that ends the line.
    After,
}

impl Heads {
    pub(super) fn new(bytes_max: usize, share: Share) -> Self {
        Self {
            text: Vec::new(),
            bytes_max,
            share,
            body: None,
            whole: 0,
            twice: Arc::new(AtomicU64::new(u64::MAX)),
            line: Line::Before,
            is_plain: true,
        }
    }

    /// Percent-encodes quotes and angle brackets in the query of a request line. Hyper refuses them, but browsers,
    /// `curl` and the servers that users migrate from let them through unescaped. `None` if nothing has to change.
    /// Bodies are never touched, as their length would no longer be the stated one.
    pub(super) fn escaped(&mut self, came: &[u8]) -> Option<Vec<u8>> {
        let mut escaped: Option<Vec<u8>> = None;
        if !self.is_plain {
            return None;
        }
        for (at, byte) in came.iter().enumerate() {
            self.line = match (self.line, byte) {
                (Line::After, _) => break,
                (Line::Before, b'\r' | b'\n') => Line::Before,
                (Line::Path | Line::Query, b'\n') => Line::After,
                (Line::Path, b'?') | (Line::Query, _) => Line::Query,
                (Line::Before | Line::Path, _) => Line::Path,
            };
            let code: &[u8] = match byte {
                b'"' => b"%22",
                b'<' => b"%3C",
                b'>' => b"%3E",
                other => std::slice::from_ref(other),
            };
            if let Some(text) = &mut escaped {
                text.extend_from_slice(if self.line == Line::Query { code } else { std::slice::from_ref(byte) });
            } else if self.line == Line::Query && code.len() > 1 {
                let mut text = Vec::with_capacity(came.len() + 64);
                text.extend_from_slice(&came[..at]);
                text.extend_from_slice(code);
                escaped = Some(text);
            }
            if self.line == Line::After
                && let Some(text) = &mut escaped
            {
                text.extend_from_slice(&came[at + 1..]);
            }
        }
        escaped
    }

    /// Number of the first head, counted from 0, that states the length of its body more than once; `u64::MAX` if
    /// none does.
    pub(super) fn twice(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.twice)
    }

    /// How many heads have arrived completely.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Tracks bytes that have arrived: reads heads and skips the bodies between them.
    ///
    /// # Errors
    /// `TooLarge`, `NoRoom`: see [`HeadRefusal`].
    pub(super) fn read(&mut self, mut came: &[u8]) -> Result<(), HeadRefusal> {
        while !came.is_empty() {
            came = if let Some(body) = &mut self.body {
                let Some(behind) = body.pass(came) else { return Ok(()) };
                self.body = None;
                behind
            } else {
                self.head(came)?
            };
        }
        Ok(())
    }

    /// Reads a part of a head. Returns the bytes after its end; none if the end has not arrived.
    fn head<'a>(&mut self, came: &'a [u8]) -> Result<&'a [u8], HeadRefusal> {
        let before = self.text.len();
        // One byte more than allowed is kept, to tell "just fits" from "too large".
        let room = (self.bytes_max + 1).saturating_sub(before);
        self.text.extend_from_slice(&came[..came.len().min(room)]);
        let end = end_of_head(&self.text, before.saturating_sub(3)).filter(|end| *end <= self.bytes_max);
        if let Some(end) = end {
            let behind = &came[end.saturating_sub(before)..];
            let (stated, body) = BodyFraming::of(&self.text[..end]);
            if stated > 1 {
                self.twice.fetch_min(self.whole, Relaxed);
            }
            self.whole += 1;
            self.is_plain &= stated == 0 && behind.is_empty();
            (self.text, self.line, self.body) = (Vec::new(), Line::Before, body);
            self.share.try_hold(0);
            return Ok(behind);
        }
        if self.text.len() > self.bytes_max {
            return Err(HeadRefusal::TooLarge);
        }
        // Twice: the parser buffers the same bytes until the head is complete.
        if self.share.try_hold(2 * self.text.len()) { Ok(&[]) } else { Err(HeadRefusal::NoRoom) }
    }

    /// Drops the text of the incomplete head when its connection is refused. Its share of the budget stays, since the
    /// parser still has its copy.
    pub(super) fn forget(&mut self) {
        self.text = Vec::new();
    }
}

/// The position after the empty line that ends a head. Lines may end without a carriage return; empty lines before
/// the head are skipped.
fn end_of_head(text: &[u8], from: usize) -> Option<usize> {
    let begin = text.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
    let mut at = from.max(begin);
    while let Some(found) = text[at..].iter().position(|b| *b == b'\n') {
        at += found + 1;
        match &text[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Returns the memory that a head takes, and the bytes of its request line and fields without `Authorization`.
pub(super) fn weight(head: &Parts) -> (usize, usize) {
    let target = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    let line = head.method.as_str().len() + target;
    let (mut held, mut plain) = (BUFFER_SHARE * line, line);
    for (name, value) in &head.headers {
        let bytes = name.as_str().len() + value.len();
        held += BUFFER_SHARE * bytes + FIELD_BYTES;
        if name != header::AUTHORIZATION {
            plain += bytes;
        }
    }
    (held, plain)
}

/// Joins several `Content-Encoding` fields into the one list that they stand for (RFC 9110, 5.3), so that no reader
/// sees only one of them.
pub(super) fn join_codings(headers: &mut HeaderMap) {
    let codings: Vec<&[u8]> = headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes).collect();
    if codings.len() > 1
        && let Ok(list) = HeaderValue::from_bytes(&codings.join(&b", "[..]))
    {
        headers.insert(header::CONTENT_ENCODING, list);
    }
}

/// Whether a value of `Host` is valid: a host name with an optional port, or empty.
fn is_host(value: &HeaderValue) -> bool {
    let parsed = || value.to_str().is_ok_and(|text| !text.contains('@') && text.parse::<Authority>().is_ok());
    value.is_empty() || parsed()
}

/// The response to a request that must be refused; `None` if it is fine. `twice`: the length of its body is stated
/// more than once.
pub(super) fn refusal(head: &Parts, twice: bool) -> Option<Response> {
    let bad = |text: &str| Some(plain(StatusCode::BAD_REQUEST, text));
    if twice {
        return bad("the length of the body is stated more than once");
    }
    // Only the chunked coding is decoded. Any other below it would be stored as if it were the body.
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if head.headers.get(header::TRANSFER_ENCODING).is_some_and(|coding| !is_chunked(coding)) {
        return Some(plain(StatusCode::NOT_IMPLEMENTED, "`Transfer-Encoding` can be `chunked`, alone"));
    }
    // Readers would take a body that says so for one that is not encoded.
    if head.headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| coding.to_str().is_err()) {
        return Some(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "`Content-Encoding` names no encoding"));
    }
    if head.version == Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        return bad("`Host` is missing");
    }
    // A proxy in front may have used the other one.
    if head.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return bad("`Host` is given more than once");
    }
    if head.headers.get(header::HOST).is_some_and(|host| !is_host(host)) {
        return bad("`Host` is not the name of a host");
    }
    // HTTP/2 has the name in `:authority`, and need not repeat it.
    let needed = head.version < Version::HTTP_2;
    if let Some(authority) = head.uri.authority()
        && head.method != http::Method::CONNECT
        && head.headers.get(header::HOST).map_or(needed, |host| !is_text(host.as_bytes(), authority.as_str()))
    {
        return bad("the target and `Host` name different hosts");
    }
    if head.uri.path().split('/').any(is_trick) {
        return bad("the path has a segment that stands for another one");
    }
    if head.uri.path().split('%').skip(1).any(|after| !begins_with_hex(after)) {
        return bad("the path has a `%` without two hexadecimal digits behind it");
    }
    None
}

/// Whether a text begins with two hexadecimal digits.
fn begins_with_hex(text: &str) -> bool {
    text.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

fn is_text(bytes: &[u8], text: &str) -> bool {
    bytes.eq_ignore_ascii_case(text.as_bytes())
}

/// Whether a path segment is `.` or `..`, encoded or not, or contains a NUL.
fn is_trick(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    matches!(&*plain, "." | "..") || segment.contains("%00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_memory::BodyBudget;

    fn heads_of(bytes_max: usize) -> Heads {
        Heads::new(bytes_max, BodyBudget::of_heads(0).share())
    }

    #[test]
    fn heads_in_pieces_of_any_size() {
        let check = |head: &str, twice: bool| {
            for piece in [1, 2, 3, 7, head.len()] {
                let mut heads = heads_of(1000);
                for part in head.as_bytes().chunks(piece) {
                    heads.read(part).expect("small enough");
                }
                assert_eq!(heads.twice.load(Relaxed) == 0, twice, "{head:?} in pieces of {piece}");
                assert_eq!((heads.whole(), heads.text.len()), (1, 0), "{head:?} in pieces of {piece}");
            }
        };
        check("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", false);
        check("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n", true);
        check("\r\nGET / HTTP/1.1\nTransfer-Encoding: chunked\nCONTENT-LENGTH : 3\n\n", true);
        check("GET / HTTP/1.1\r\nX: content-length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false);
    }

    #[test]
    fn queries_with_quotes() {
        let check = |heads: &mut Heads, piece: usize, came: &str, expected: &str| {
            let mut read = Vec::new();
            for part in came.as_bytes().chunks(piece) {
                let escaped = heads.escaped(part);
                let part = escaped.as_deref().unwrap_or(part);
                heads.read(part).expect("small enough");
                read.extend_from_slice(part);
            }
            assert_eq!(String::from_utf8_lossy(&read), expected, "in pieces of {piece}");
        };
        let rest = "HTTP/1.1\r\nHost: x\r\nReferer: /?a=\"b\"\r\n";
        for piece in [1, 2, 5, 1000] {
            let mut heads = heads_of(1000);
            let (came, expected) = ("\r\nGET /\"a?q=up{a=\"b\"}<> ", "\r\nGET /\"a?q=up{a=%22b%22}%3C%3E ");
            check(&mut heads, piece, &format!("{came}{rest}\r\n"), &format!("{expected}{rest}\r\n"));
            let (came, expected) = ("POST /?\" ", "POST /?%22 ");
            let rest = format!("{rest}Content-Length: 9\r\n\r\n");
            check(&mut heads, piece, &format!("{came}{rest}"), &format!("{expected}{rest}"));
            // These bytes may be a body, so they are not changed.
            let came = format!("POST /?\" {rest}");
            check(&mut heads, piece, &came, &came);
        }
    }

    #[test]
    fn sizes() {
        let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100));
        assert_eq!(heads_of(head.len()).read(head.as_bytes()), Ok(()));
        assert_eq!(heads_of(head.len() - 1).read(head.as_bytes()), Err(HeadRefusal::TooLarge));
        let mut heads = heads_of(10);
        assert_eq!(heads.read(b"0123456789"), Ok(()));
        assert_eq!(heads.read(b"0"), Err(HeadRefusal::TooLarge));
    }

    /// Would fail if bytes within a body, or the end of a head that began after one, were taken for a head of their
    /// own.
    #[test]
    fn heads_behind_bodies() {
        let lines = "A: 1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        let long = "x".repeat(1000);
        let one = |fields: &str, body: &str| format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n{body}");
        let all = [
            one("Host: x", ""),
            one(&format!("Content-Length: {}", lines.len()), lines),
            one("Content-Length: 1000", &long),
            one("Transfer-Encoding: chunked", &format!("{:x}\r\n{lines}\r\n3e8\r\n{long}\r\n0\r\n\r\n", lines.len())),
            one("Content-Length: 0", ""),
            one("Content-Length: 1\r\nContent-Length: 1", "x"),
            one("Host: x", ""),
        ]
        .concat();
        for piece in 1..=all.len() {
            let mut heads = heads_of(100);
            for part in all.as_bytes().chunks(piece) {
                heads.read(part).unwrap_or_else(|why| panic!("in pieces of {piece}: {why:?}"));
            }
            assert_eq!((heads.whole(), heads.text.len()), (7, 0), "in pieces of {piece}");
            assert_eq!(heads.twice.load(Relaxed), 5, "in pieces of {piece}");
        }
        let mut heads = heads_of(100);
        let behind = format!("{}GET / HTTP/1.1\r\nX: {}", one("Content-Length: 1000", &long), "x".repeat(100));
        assert_eq!(heads.read(behind.as_bytes()), Err(HeadRefusal::TooLarge));
        assert_eq!(heads.whole(), 1);
    }

    #[test]
    fn heads_that_are_begun_share_what_there_is() {
        let budget = BodyBudget::of_heads(0);
        let begun = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(15_000));
        let mut all = Vec::new();
        let refused = loop {
            let mut heads = Heads::new(16_384, budget.share());
            match heads.read(begun.as_bytes()) {
                Ok(()) => all.push(heads),
                Err(why) => break (heads, why),
            }
            assert!(all.len() < 10_000, "nothing is counted");
        };
        let (mut heads, why) = refused;
        assert_eq!(why, HeadRefusal::NoRoom);
        heads.forget();
        let mut small = Heads::new(16_384, budget.share());
        assert_eq!(small.read(b"GET / HTTP/1.1\r\n"), Ok(()), "a small one has room");
        assert_eq!(all[0].read(b"\r\n\r\n"), Ok(()), "one comes to its end");
        assert_eq!(heads.read(begun.as_bytes()), Ok(()), "and gives back what it held");
    }

    #[test]
    fn what_heads_take() {
        let request = http::Request::builder().uri("/a?b").header("authorization", "Bearer 123").header("x", "yz");
        let (head, ()) = request.body(()).expect("a request").into_parts();
        assert_eq!(weight(&head), (BUFFER_SHARE * (3 + 3 + 13 + 10 + 3) + 2 * FIELD_BYTES, 3 + 3 + 3));
    }

    #[test]
    fn tricks() {
        for segment in [".", "..", "%2e", ".%2E", "%2e%2e", "a%00", "%00"] {
            assert!(is_trick(segment), "{segment}");
        }
        for segment in ["", "...", "a..b", "%2e%2e%2e", "%000x".trim_end_matches("0x"), ".a"] {
            assert_eq!(is_trick(segment), segment.contains("%00"), "{segment}");
        }
    }

    #[test]
    fn codings_are_one_list() {
        let check = |codings: &[&'static str], expected: &str| {
            let mut headers = HeaderMap::new();
            for &coding in codings {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            join_codings(&mut headers);
            let joined: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().collect();
            assert_eq!(joined, [expected], "{codings:?}");
        };
        check(&["gzip"], "gzip");
        check(&["gzip", "gzip"], "gzip, gzip");
        check(&["identity", "gzip", ""], "identity, gzip, ");
    }

    #[test]
    fn refused_heads() {
        let check_in = |version: Version, target: &str, headers: &[(&str, &str)], expected: Option<u16>| {
            let bare = http::Request::builder().version(version).uri(target);
            let request = headers.iter().fold(bare, |request, (name, value)| request.header(*name, *value));
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let status = refusal(&head, false).map(|answer| answer.status().as_u16());
            assert_eq!(status, expected, "{version:?} {target} {headers:?}");
        };
        let check = |target: &str, headers: &[(&str, &str)], expected| {
            check_in(Version::HTTP_11, target, headers, expected);
        };
        let check_http2 = |target: &str, headers: &[(&str, &str)], expected| {
            check_in(Version::HTTP_2, target, headers, expected);
        };
        let host = ("host", "x");
        check("/a/%41?b=%", &[host], None);
        check("/a", &[], Some(400));
        check("/a", &[host, ("host", "y")], Some(400));
        check("http://y/a", &[host], Some(400));
        for name in ["", "x:8800", "my_host", "127.0.0.1:1", "[::1]:8800", "a.b-c.d"] {
            check("/a", &[("host", name)], None);
        }
        for name in ["x/y", "a@x", "x y", "x?y", "x#y", "x,y/", "http://x", "\\x"] {
            check("/a", &[("host", name)], Some(400));
        }
        for path in ["/%", "/%4", "/%zz", "/%4g", "/a%/b", "/%%41"] {
            check(path, &[host], Some(400));
        }
        check_http2("http://y/a", &[], None);
        check_http2("http://y/a", &[("host", "Y")], None);
        check_http2("http://y/a", &[host], Some(400));
        check_http2("/a", &[host, host], Some(400));
        check_http2("/a", &[("host", "a@x")], Some(400));
        check_http2("/a", &[host], None);
        check("/a", &[host, ("transfer-encoding", "Chunked")], None);
        check("/a", &[host, ("transfer-encoding", "gzip, chunked")], Some(501));
        check("/a", &[host, ("transfer-encoding", "identity")], Some(501));
        check("/a", &[host, ("content-encoding", "gzip")], None);
        check("/a", &[host, ("content-encoding", "gzip"), ("content-encoding", "\u{ff}")], Some(415));
    }
}
