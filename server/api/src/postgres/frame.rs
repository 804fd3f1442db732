//! Messages of clients: taken off the connection one by one, none larger than allowed, and read without trust.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::fault::Fault;
use crate::bodies::Share;

/// Largest message of a client: a statement of the greatest length, or its parameters.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Largest message of somebody who has not said who he is.
pub(super) const STARTUP_BYTES_MAX: usize = 16 << 10;
/// How many more bytes are taken off a connection while a statement of it runs.
pub(super) const AHEAD_BYTES_MAX: usize = 64 << 10;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// Statements to run at once.
    Query(String),
    Parse {
        name: String,
        query: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    /// A statement (`true`) or a portal.
    Describe(bool, String),
    Execute {
        portal: String,
        /// 0: all.
        rows: u32,
    },
    /// A statement (`true`) or a portal.
    Close(bool, String),
    Flush,
    Sync,
    Terminate,
    Password(String),
    /// `COPY` and function calls, which nothing here asks for.
    Unasked(u8),
}

/// Values for a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) portal: String,
    pub(super) statement: String,
    /// 1: binary; none: all text, one: of all.
    pub(super) formats: Vec<i16>,
    pub(super) values: Vec<Option<Bytes>>,
    /// The same of the columns of the answer.
    pub(super) results: Vec<i16>,
}

/// Reads the first message of a connection, which has no type: its body without its length.
///
/// # Errors
/// Those of the connection; `InvalidData` for a length that cannot be, and another where there is no memory for it.
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

/// Takes a whole message out of what was read; none: more has to be read.
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

/// What is left of a message.
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

    /// A text up to its NUL.
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

    /// `S` and `P` before a name.
    fn target(&mut self) -> Option<(bool, String)> {
        let is_statement = match self.u8()? {
            b'S' => true,
            b'P' => false,
            _ => return None,
        };
        Some((is_statement, self.text()?))
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
            b'D' => self.target().map(|(is_statement, name)| Message::Describe(is_statement, name))?,
            b'C' => self.target().map(|(is_statement, name)| Message::Close(is_statement, name))?,
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

/// Reads a message.
///
/// # Errors
/// One that is none of the protocol's, is cut short, has more than it says, or texts that are not UTF-8.
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
    use crate::bodies::BodyBudget;

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
        // A length that is below zero, and one beyond what is there.
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
}
