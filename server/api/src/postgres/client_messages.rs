//! Messages of clients: read from the connection one by one, limited in size, and parsed defensively.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::error::Fault;
use crate::body_memory::Share;

/// Largest message of a client, which limits statements and their parameters.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Largest message before authentication.
pub(super) const STARTUP_BYTES_MAX: usize = 16 << 10;
/// Bytes that are read ahead while a statement runs. Few, since nothing counts them and the statements of many
/// connections may wait.
pub(super) const AHEAD_BYTES_MAX: usize = 8 << 10;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// Statements to run at once (simple query).
    Query(String),
    Parse {
        name: String,
        query: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target),
    Execute {
        portal: String,
        /// Maximum number of rows; 0: all.
        rows: u32,
    },
    Close(Target),
    Flush,
    Sync,
    Terminate,
    Password(String),
    /// `COPY` data and function calls, which are never expected.
    Unasked(u8),
}

/// What a client asks about or closes, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Statement(String),
    Portal(String),
}

/// Parameter values for a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) portal: String,
    pub(super) statement: String,
    /// Formats of the values, 1 means binary. Empty: all are text; a single one applies to all.
    pub(super) formats: Vec<i16>,
    pub(super) values: Vec<Option<Bytes>>,
    /// The same for the result columns.
    pub(super) results: Vec<i16>,
}

/// Reads the first message of a connection, which has no type. Returns its body without the length.
///
/// # Errors
/// Those of the connection; `InvalidData` for an impossible length, another kind if there is no memory for it.
pub(super) async fn untyped(stream: &mut (impl AsyncRead + Unpin), share: &mut Share) -> std::io::Result<Bytes> {
    let len = stream.read_u32().await? as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&len) {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    if !share.try_hold(len) {
        return Err(std::io::Error::other("the memory for what connections keep is used up"));
    }
    let mut body = vec![0; len - 4];
    stream.read_exact(&mut body).await?;
    Ok(body.into())
}

/// Takes a complete message from the bytes that were read; `None` if more must be read.
pub(super) fn take(read: &mut BytesMut, bytes_max: usize) -> Result<Option<(u8, Bytes)>, Fault> {
    let Some((head, _)) = read.split_first_chunk::<5>() else { return Ok(None) };
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let kind = head[0];
    if len < 4 {
        return Err(Fault::protocol("a message says that it is shorter than its length"));
    }
    if len > bytes_max {
        return Err(Fault::fatal(
            "54000",
            format!("a message of {len} bytes is too large; at most {bytes_max} are allowed"),
        ));
    }
    if read.len() < len + 1 {
        read.reserve(len + 1 - read.len());
        return Ok(None);
    }
    read.advance(5);
    Ok(Some((kind, read.split_to(len - 4).freeze())))
}

/// The unread rest of a message.
struct Body(Bytes);

impl Body {
    fn bytes(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.0.len()).then(|| self.0.split_to(count))
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(|mut b| b.get_u16())
    }

    fn i32(&mut self) -> Option<i32> {
        self.bytes(4).map(|mut b| b.get_i32())
    }

    /// Reads a NUL-terminated string.
    fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = String::from_utf8(self.0.split_to(end).to_vec()).ok()?;
        self.0.advance(1);
        Some(text)
    }

    fn formats(&mut self) -> Option<Vec<i16>> {
        let count = self.u16()?;
        (0..count).map(|_| self.u16().map(|format| format as i16)).collect()
    }

    #[allow(clippy::option_option, reason = "none: the message is cut; none within: NULL")]
    fn value(&mut self) -> Option<Option<Bytes>> {
        match self.i32()? {
            -1 => Some(None),
            len => self.bytes(usize::try_from(len).ok()?).map(Some),
        }
    }

    fn bind(&mut self) -> Option<Bind> {
        let (portal, statement, formats) = (self.text()?, self.text()?, self.formats()?);
        let count = self.u16()?;
        let values = (0..count).map(|_| self.value()).collect::<Option<_>>()?;
        Some(Bind { portal, statement, formats, values, results: self.formats()? })
    }

    /// Reads `S` or `P` and a name.
    fn target(&mut self) -> Option<Target> {
        match self.u8()? {
            b'S' => Some(Target::Statement(self.text()?)),
            b'P' => Some(Target::Portal(self.text()?)),
            _ => None,
        }
    }

    fn message(&mut self, kind: u8) -> Option<Message> {
        Some(match kind {
            b'Q' => Message::Query(self.text()?),
            b'P' => {
                let (name, query) = (self.text()?, self.text()?);
                let count = self.u16()?;
                let types = (0..count).map(|_| self.i32().map(|oid| oid as u32)).collect::<Option<_>>()?;
                Message::Parse { name, query, types }
            }
            b'B' => Message::Bind(self.bind()?),
            b'D' => Message::Describe(self.target()?),
            b'C' => Message::Close(self.target()?),
            b'E' => Message::Execute { portal: self.text()?, rows: u32::try_from(self.i32()?).unwrap_or(0) },
            b'H' => Message::Flush,
            b'S' => Message::Sync,
            b'X' => Message::Terminate,
            b'p' => Message::Password(self.text()?),
            b'F' | b'd' | b'c' | b'f' => {
                self.0.clear();
                Message::Unasked(kind)
            }
            _ => return None,
        })
    }
}

/// Parses a message.
///
/// # Errors
/// An unknown type, a truncated message or one with trailing bytes, or strings that are not UTF-8.
pub(super) fn read(kind: u8, body: Bytes) -> Result<Message, Fault> {
    let mut body = Body(body);
    let message = body.message(kind).filter(|_| body.0.is_empty());
    message.ok_or_else(|| {
        Fault::protocol(format!("a message of type `{}` cannot be read", char::from(kind).escape_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_memory::BodyBudget;

    fn message(kind: u8, body: &[u8]) -> Result<Message, Fault> {
        read(kind, Bytes::copy_from_slice(body))
    }

    #[tokio::test]
    async fn first_messages_have_one_memory() {
        let budget = BodyBudget::of_windows(4096, 0);
        let message = [&5000_u32.to_be_bytes()[..], &[0; 4996]].concat();
        let mut shares = [budget.share(), budget.share()];
        for (share, fits) in shares.iter_mut().zip([true, false]) {
            let read = untyped(&mut &message[..], share).await;
            assert_eq!(read.is_ok_and(|body| body.len() == 4996), fits);
        }
        let [first, mut second] = shares;
        drop(first);
        assert!(untyped(&mut &message[..], &mut second).await.is_ok(), "it is given back");
    }

    #[test]
    fn messages() {
        assert_eq!(message(b'Q', b"select 1\0").unwrap(), Message::Query("select 1".into()));
        let parse = Message::Parse { name: "s".into(), query: "q".into(), types: vec![23] };
        assert_eq!(message(b'P', b"s\0q\0\0\x01\0\0\0\x17").unwrap(), parse);
        let bind = message(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0").unwrap();
        let values = vec![Some(Bytes::from_static(b"x")), None];
        let expected = Bind { portal: String::new(), statement: "s".into(), formats: vec![1], values, results: vec![] };
        assert_eq!(bind, Message::Bind(expected));
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let whole = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0";
        for len in 0..whole.len() {
            assert!(message(b'B', &whole[..len]).is_err(), "{len}");
        }
        for (kind, body) in [
            (b'Q', &b"no end"[..]),
            (b'P', b"a\0b\0\xff\xff"),
            (b'D', b"X\0"),
            (b'?', b""),
            (b'S', b"more"),
            (b'Q', b"\xff\0"),
        ] {
            assert!(message(kind, body).is_err(), "{kind}");
        }
        // A negative length, and one beyond the end.
        assert!(message(b'B', b"\0s\0\0\0\0\x01\xff\xff\xff\xfe\0\0").is_err());
        assert!(message(b'B', b"\0s\0\0\0\0\x01\x7f\xff\xff\xff\0\0").is_err());
    }

    #[test]
    fn frames_are_bounded() {
        let mut read = BytesMut::from(&b"Q\0\0\0\x05\0S\0\0\0\x04Q"[..]);
        assert_eq!(take(&mut read, 100).unwrap(), Some((b'Q', Bytes::from_static(b"\0"))));
        assert_eq!(take(&mut read, 100).unwrap(), Some((b'S', Bytes::new())));
        assert_eq!(take(&mut read, 100).unwrap(), None);
        assert!(take(&mut BytesMut::from(&b"Q\x7f\0\0\0"[..]), 100).is_err());
        assert!(take(&mut BytesMut::from(&b"Q\0\0\0\x03"[..]), 100).is_err());
    }

    #[test]
    fn messages_of_every_type() {
        for (kind, body, expected) in [
            (b'D', &b"Ss1\0"[..], Message::Describe(Target::Statement("s1".into()))),
            (b'D', b"P\0", Message::Describe(Target::Portal(String::new()))),
            (b'C', b"Sx\0", Message::Close(Target::Statement("x".into()))),
            (b'C', b"P\xc3\xa9\0", Message::Close(Target::Portal("é".into()))),
            (b'E', b"\0\0\0\0\x07", Message::Execute { portal: String::new(), rows: 7 }),
            (b'E', b"p\0\0\0\0\0", Message::Execute { portal: "p".into(), rows: 0 }),
            // A negative number means all.
            (b'E', b"p\0\xff\xff\xff\xff", Message::Execute { portal: "p".into(), rows: 0 }),
            (b'E', b"p\0\x7f\xff\xff\xff", Message::Execute { portal: "p".into(), rows: i32::MAX as u32 }),
            (b'H', b"", Message::Flush),
            (b'S', b"", Message::Sync),
            (b'X', b"", Message::Terminate),
            (b'p', b"secret\0", Message::Password("secret".into())),
            (b'Q', b"\0", Message::Query(String::new())),
            (b'd', b"anything", Message::Unasked(b'd')),
            (b'F', b"", Message::Unasked(b'F')),
            (b'P', b"\0q\0\0\0", Message::Parse { name: String::new(), query: "q".into(), types: Vec::new() }),
        ] {
            assert_eq!(message(kind, body), Ok(expected), "{}", char::from(kind));
        }
        let types = message(b'P', b"\0\0\0\x02\xff\xff\xff\xff\0\0\0\0").unwrap();
        let expected = vec![u32::MAX, 0];
        assert_eq!(types, Message::Parse { name: String::new(), query: String::new(), types: expected });
    }

    /// Would fail if trailing bytes of a message were ignored.
    #[test]
    fn nothing_stands_behind_a_message() {
        for (kind, body) in [
            (b'Q', &b"select 1\0"[..]),
            (b'P', b"s\0q\0\0\0"),
            (b'B', b"\0s\0\0\0\0\0\0\0"),
            (b'D', b"S\0"),
            (b'C', b"P\0"),
            (b'E', b"\0\0\0\0\0"),
            (b'H', b""),
            (b'X', b""),
            (b'p', b"\0"),
        ] {
            assert!(message(kind, body).is_ok(), "{}", char::from(kind));
            let fault = message(kind, &[body, &[0]].concat()).unwrap_err();
            assert!(fault.is_fatal() && fault.code == "08P01", "{}", char::from(kind));
            assert_eq!(fault.message, format!("a message of type `{}` cannot be read", char::from(kind)));
        }
        assert_eq!(message(0, b"").unwrap_err().message, "a message of type `\\u{0}` cannot be read");
    }

    /// However a stream is cut into pieces, it yields the same messages.
    #[test]
    fn frames_come_in_pieces() {
        let frame = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat();
        let all = [(b'Q', &b"select 1\0"[..]), (b'S', b""), (b'd', &[7; 300]), (b'X', b"")];
        let stream: Vec<u8> = all.iter().flat_map(|(kind, body)| frame(*kind, body)).collect();
        for piece in [1, 2, 4, 5, 6, 7, 100, stream.len()] {
            let (mut read, mut found) = (BytesMut::new(), Vec::new());
            for part in stream.chunks(piece) {
                read.extend_from_slice(part);
                while let Some(taken) = take(&mut read, 304).unwrap() {
                    found.push(taken);
                }
            }
            assert!(read.is_empty());
            let expected: Vec<(u8, Bytes)> =
                all.iter().map(|(kind, body)| (*kind, Bytes::copy_from_slice(body))).collect();
            assert_eq!(found, expected, "in pieces of {piece}");
        }
        // The limit applies to the length in the message, which includes itself.
        let mut large = BytesMut::from(&frame(b'd', &[7; 300])[..]);
        let fault = take(&mut large, 303).unwrap_err();
        assert_eq!((fault.code, fault.is_fatal()), ("54000", true));
        assert_eq!(fault.message, "a message of 304 bytes is too large; at most 303 are allowed");
        let short = take(&mut BytesMut::from(&b"Q\0\0\0\0"[..]), 303).unwrap_err();
        assert_eq!(short.code, "08P01");
    }

    #[tokio::test]
    async fn first_messages_have_a_length_that_can_be() {
        let budget = BodyBudget::of_windows(1 << 20, 0);
        let read = async |len: usize, sent: usize| {
            let message = [&(len as u32).to_be_bytes()[..], &vec![7; sent]].concat();
            let read = untyped(&mut &message[..], &mut budget.share()).await;
            read.map(|body| body.len()).map_err(|error| error.kind())
        };
        assert_eq!(read(8, 4).await, Ok(4));
        assert_eq!(read(STARTUP_BYTES_MAX, STARTUP_BYTES_MAX).await, Ok(STARTUP_BYTES_MAX - 4));
        for len in [0, 4, 7, STARTUP_BYTES_MAX + 1, u32::MAX as usize] {
            assert_eq!(read(len, 8).await, Err(std::io::ErrorKind::InvalidData), "{len}");
        }
        assert_eq!(read(9, 4).await, Err(std::io::ErrorKind::UnexpectedEof));
        let nothing = untyped(&mut &b"\0\0"[..], &mut budget.share()).await;
        assert_eq!(nothing.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }

    /// Any bytes are parsed or refused; the result is no larger than the input.
    #[test]
    fn anything_may_come() {
        let mut seed = 11_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..5_000 {
            let kind = b"QPBDCEHSXpFdcf?"[next(15) as usize];
            // Mostly small numbers and NULs, as in real messages.
            let body: Vec<u8> = (0..next(40)).map(|_| if next(4) == 0 { next(256) } else { next(3) } as u8).collect();
            let texts = match message(kind, &body) {
                Ok(Message::Bind(bind)) => {
                    bind.values.iter().flatten().map(Bytes::len).sum::<usize>()
                        + bind.portal.len()
                        + bind.statement.len()
                }
                Ok(Message::Parse { name, query, types }) => name.len() + query.len() + 4 * types.len(),
                Ok(_) | Err(_) => 0,
            };
            assert!(texts <= body.len(), "{kind} {body:?}");
        }
    }
}
