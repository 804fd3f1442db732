//! The socket of a connection as hyper reads and writes it: tells the watch what happens, looks at heads before hyper
//! parses them, and answers a client whose head came too late.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{self, Frames};
use super::head::{Heads, Misframed};
use super::stream::Stream;
use super::watch::Watch;

/// What a client is told whose head does not come.
pub(super) const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// What a client is told for whose head there is no memory.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket, with what was read of it before.
pub(super) struct Socket {
    stream: Stream,
    before: Bytes,
    /// What was looked at, changed, and did not fit into the buffer that it was read for.
    looked_at: Bytes,
    heads: Heads,
    /// Where the client speaks HTTP/2.
    frames: Option<Frames>,
    watch: Arc<Watch>,
    /// What is wrong with a head that came while requests before it are under way.
    fault: Option<Misframed>,
    /// Whether the client was answered here, in place of hyper, which still waits for a head.
    refused: bool,
}

impl Socket {
    pub(super) fn new(stream: Stream, before: Bytes, heads: Heads, watch: Arc<Watch>) -> Self {
        Self { stream, before, looked_at: Bytes::new(), heads, frames: None, watch, fault: None, refused: false }
    }

    /// Looks at the frames of HTTP/2 instead of heads.
    pub(super) fn with_frames(self, frames: Option<Frames>) -> Self {
        Self { frames, ..self }
    }

    /// Looks at what came; gives what hyper is to read in its place.
    fn look_at(&mut self, came: &[u8]) -> Result<Option<Vec<u8>>, Misframed> {
        if came.is_empty() {
            return Ok(None);
        }
        self.watch.received();
        if let Some(frames) = &mut self.frames {
            return frames.read(came).map(|()| None);
        }
        if self.fault.is_some() {
            return Ok(None);
        }
        let escaped = self.heads.escaped(came);
        self.fault = self.heads.read(escaped.as_deref().unwrap_or(came)).err();
        self.judged().map_or(Ok(escaped), Err)
    }

    /// What is wrong with a head, once all requests before it are answered.
    fn judged(&self) -> Option<Misframed> {
        self.fault.filter(|_| self.watch.waits(self.heads.whole()))
    }

    /// Says why no more is read, and ends the connection.
    fn refuse(&mut self, why: Misframed, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match why {
            Misframed::NoRoom => {
                // What the parser has of it goes with the connection, so nobody is waited for; what has come is read, as
                // closing before would take the answer back.
                while matches!(self.poll_scratch(cx), Poll::Ready(Ok(true))) {}
                let text = if self.frames.is_some() { frames::NO_ROOM } else { NO_ROOM };
                self.stream.say(text);
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
            }
            Misframed::TooLarge => {
                self.refused = true;
                self.heads.forget();
                self.stream.say(TOO_LARGE);
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                self.poll_rest(cx)
            }
        }
    }

    /// Reads to the end of what a refused client still sends: to close before would take the answer back.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.poll_scratch(cx))? {}
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }

    /// Reads something and drops it; says whether there was any.
    fn poll_scratch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut scratch = [0; 4096];
        let mut scratch = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut scratch))?;
        Poll::Ready(Ok(!scratch.filled().is_empty()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.watch.expired() {
            if !self.refused {
                self.stream.say(TOO_LATE);
            }
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.refused {
            return self.poll_rest(cx);
        }
        if let Some(why) = self.judged() {
            return self.refuse(why, cx);
        }
        if !self.looked_at.is_empty() {
            let len = self.looked_at.len().min(out.remaining());
            out.put_slice(&self.looked_at[..len]);
            self.looked_at.advance(len);
            return Poll::Ready(Ok(()));
        }
        let from = out.filled().len();
        if self.before.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        } else {
            let len = self.before.len().min(out.remaining());
            out.put_slice(&self.before[..len]);
            self.before.advance(len);
        }
        match self.look_at(&out.filled()[from..]) {
            Ok(None) => {}
            Ok(Some(escaped)) => {
                out.set_filled(from);
                let len = escaped.len().min(out.remaining());
                out.put_slice(&escaped[..len]);
                self.looked_at = Bytes::from(escaped).slice(len..);
            }
            Err(why) => {
                out.set_filled(from);
                return self.refuse(why, cx);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.watch.sent(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.watch.sent(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
