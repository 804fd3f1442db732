//! Heads of requests that two parsers could read in two ways are refused, though hyper would take them: a body whose end
//! is stated twice or hidden below a coding, a path that is not what it seems, a target of another host or of none.
//!
//! What heads take counts in a budget of all connections: while one is begun and not whole here, from then on in the
//! share of its request. Where they begin is known by the bodies in front of them (`framing`), not by what is under way: a
//! client may send the next one with a body, or before the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

use super::framing::Framing;
use crate::bodies::Share;
use crate::error::plain;

/// How often the text of a head may be in memory: hyper doubles the buffer that it reads heads into, and what is kept of a
/// head keeps all of its buffer.
const BUFFER_SHARE: usize = 2;
/// What a field of a head takes beside its text.
const FIELD_BYTES: usize = 96;

/// Why a head cannot be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misframed {
    /// Larger than allowed, and its end has not come.
    TooLarge,
    /// There is no memory for another head that is not whole.
    NoRoom,
}

/// The heads of an HTTP/1 connection as they come, however many stand in what is read at once.
#[derive(Debug)]
pub(super) struct Heads {
    text: Vec<u8>,
    bytes_max: usize,
    /// What is held of the head that is begun.
    share: Share,
    /// What is left of a body that stands in front of the next head.
    body: Option<Framing>,
    /// How many came to their end.
    whole: u64,
    /// The first one, counted from 0, that states the length of its body more than once; hyper drops what it does not go by.
    twice: Arc<AtomicU64>,
    /// Where in the first line of a head the next byte stands.
    line: Line,
    /// Whether no request had a body so far, and nothing came behind a head.
    is_plain: bool,
}

/// Where a byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// In front of it.
    Before,
    /// In the method or the path.
    Path,
    /// Behind the question mark.
    Query,
    /// Behind the line feed that ends the first line.
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

    /// Bytes of a head with what stands unescaped in the query and hyper refuses, though browsers, `curl` and the servers
    /// that people come from let it through: quotes and angle brackets. `None`: nothing has to change. A body is never
    /// touched, its length would be another.
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

    /// The first head, counted from 0, that states the length of its body more than once.
    pub(super) fn twice(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.twice)
    }

    /// How many heads came to their end.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Reads what came: heads, and past their bodies.
    ///
    /// # Errors
    /// TooLarge, NoRoom.
    pub(super) fn read(&mut self, mut came: &[u8]) -> Result<(), Misframed> {
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

    /// Reads of a head; gives what stands behind it.
    fn head<'a>(&mut self, came: &'a [u8]) -> Result<&'a [u8], Misframed> {
        let before = self.text.len();
        // One byte more than allowed tells "just fits" from "does not".
        let room = (self.bytes_max + 1).saturating_sub(before);
        self.text.extend_from_slice(&came[..came.len().min(room)]);
        let end = end_of_head(&self.text, before.saturating_sub(3)).filter(|end| *end <= self.bytes_max);
        if let Some(end) = end {
            let behind = &came[end.saturating_sub(before)..];
            let (stated, body) = Framing::of(&self.text[..end]);
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
            return Err(Misframed::TooLarge);
        }
        // The parser keeps the same bytes until the head is whole.
        if self.share.try_hold(2 * self.text.len()) { Ok(&[]) } else { Err(Misframed::NoRoom) }
    }

    /// Forgets the text of the head that is begun: its connection is refused. Its share stays, as what the parser has does.
    pub(super) fn forget(&mut self) {
        self.text = Vec::new();
    }
}

/// Where an empty line ends, which may be written without carriage returns; empty lines in front are none.
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

/// What a head takes in memory, and how many bytes its request line and fields have beside the token.
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

/// Writes codings of the body that stand in several fields as the one list that they are (RFC 9110, 5.3): nobody behind
/// goes by one of them alone.
pub(super) fn join_codings(headers: &mut HeaderMap) {
    let codings: Vec<&[u8]> = headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes).collect();
    if codings.len() > 1
        && let Ok(list) = HeaderValue::from_bytes(&codings.join(&b", "[..]))
    {
        headers.insert(header::CONTENT_ENCODING, list);
    }
}

/// Whether a value of `Host` is the name of a host, perhaps with a port; it may be empty.
fn is_host(value: &HeaderValue) -> bool {
    let parsed = || value.to_str().is_ok_and(|text| !text.contains('@') && text.parse::<Authority>().is_ok());
    value.is_empty() || parsed()
}

/// Says why a request is not let through, if it is not.
pub(super) fn refusal(head: &Parts, twice: bool) -> Option<Response> {
    let bad = |text: &str| Some(plain(StatusCode::BAD_REQUEST, text));
    if twice {
        return bad("the length of the body is stated more than once");
    }
    // Chunks are taken apart here and nothing else is: what is below them would be stored as if it were the body.
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if head.headers.get(header::TRANSFER_ENCODING).is_some_and(|coding| !is_chunked(coding)) {
        return Some(plain(StatusCode::NOT_IMPLEMENTED, "`Transfer-Encoding` can be `chunked`, alone"));
    }
    if head.version == Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        return bad("`Host` is missing");
    }
    // A proxy may have gone by the other one.
    if head.version < Version::HTTP_2 && head.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return bad("`Host` stands more than once");
    }
    if head.version < Version::HTTP_2 && head.headers.get(header::HOST).is_some_and(|host| !is_host(host)) {
        return bad("`Host` is not the name of a host");
    }
    if head.version < Version::HTTP_2
        && let Some(authority) = head.uri.authority()
        && head.method != http::Method::CONNECT
        && head.headers.get(header::HOST).is_none_or(|host| !is_text(host.as_bytes(), authority.as_str()))
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

/// Whether the two digits of an escaped byte stand at the beginning.
fn begins_with_hex(text: &str) -> bool {
    text.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

fn is_text(bytes: &[u8], text: &str) -> bool {
    bytes.eq_ignore_ascii_case(text.as_bytes())
}

/// `.` and `..` however they are written, and what holds a NUL.
fn is_trick(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    matches!(&*plain, "." | "..") || segment.contains("%00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::BodyBudget;

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
            // This may be the body.
            let came = format!("POST /?\" {rest}");
            check(&mut heads, piece, &came, &came);
        }
    }

    #[test]
    fn sizes() {
        let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100));
        assert_eq!(heads_of(head.len()).read(head.as_bytes()), Ok(()));
        assert_eq!(heads_of(head.len() - 1).read(head.as_bytes()), Err(Misframed::TooLarge));
        let mut heads = heads_of(10);
        assert_eq!(heads.read(b"0123456789"), Ok(()));
        assert_eq!(heads.read(b"0"), Err(Misframed::TooLarge));
    }

    /// Breaks where what stands in a body, or the end of a head that began behind one, is taken for a head of its own.
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
        assert_eq!(heads.read(behind.as_bytes()), Err(Misframed::TooLarge));
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
        assert_eq!(why, Misframed::NoRoom);
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
        let check = |target: &str, headers: &[(&str, &str)], expected: Option<u16>| {
            let bare = http::Request::builder().uri(target);
            let request = headers.iter().fold(bare, |request, (name, value)| request.header(*name, *value));
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let status = refusal(&head, false).map(|answer| answer.status().as_u16());
            assert_eq!(status, expected, "{target} {headers:?}");
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
        check("/a", &[host, ("transfer-encoding", "Chunked")], None);
        check("/a", &[host, ("transfer-encoding", "gzip, chunked")], Some(501));
        check("/a", &[host, ("transfer-encoding", "identity")], Some(501));
    }
}
