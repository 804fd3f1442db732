//! The socket of a connection as hyper reads and writes it. It tells the watch about progress, checks heads before
//! hyper parses them, and sends the answer itself to a client whose head came too late or is too large.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadlines::Watch;
use super::frames::{self, Frames};
use super::request_head::{HeadRefusal, Heads};
use super::stream::Stream;

/// Sent to a client whose head did not arrive in time.
pub(super) const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// Sent to a client for whose head there is no memory.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket, and the bytes that were read from it to detect the version of HTTP.
pub(super) struct Socket {
    stream: Stream,
    before: Bytes,
    /// Bytes that were checked and changed (escaped), and did not fit into the buffer of the read.
    looked_at: Bytes,
    heads: Heads,
    /// `Some` if the client speaks HTTP/2.
    frames: Option<Frames>,
    watch: Arc<Watch>,
    /// What is wrong with a head that arrived while earlier requests are still under way.
    fault: Option<HeadRefusal>,
    /// Whether the client was answered here while hyper still waits for a head.
    refused: bool,
}

impl Socket {
    pub(super) fn new(stream: Stream, before: Bytes, heads: Heads, watch: Arc<Watch>) -> Self {
        Self { stream, before, looked_at: Bytes::new(), heads, frames: None, watch, fault: None, refused: false }
    }

    /// Tracks HTTP/2 frames instead of heads, if `frames` is given.
    pub(super) fn with_frames(self, frames: Option<Frames>) -> Self {
        Self { frames, ..self }
    }

    /// Checks bytes that arrived. Returns what hyper must read instead of them; `None` if they are unchanged.
    fn look_at(&mut self, came: &[u8]) -> Result<Option<Vec<u8>>, HeadRefusal> {
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
    fn judged(&self) -> Option<HeadRefusal> {
        self.fault.filter(|_| self.watch.waits(self.heads.whole()))
    }

    /// Tells the client why no more is read, and ends the connection.
    fn refuse(&mut self, why: HeadRefusal, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match why {
            HeadRefusal::NoRoom => {
                // No memory: so nothing more is waited for. But bytes that have arrived are read first: closing a
                // socket with unread data sends a reset, and the client could lose the answer.
                while matches!(self.poll_scratch(cx), Poll::Ready(Ok(true))) {}
                let text = if self.frames.is_some() { frames::NO_ROOM } else { NO_ROOM };
                self.stream.say(text);
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
            }
            HeadRefusal::TooLarge => {
                self.refused = true;
                self.heads.forget();
                self.stream.say(TOO_LARGE);
                let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
                self.poll_rest(cx)
            }
        }
    }

    /// Tells the watch how a write went.
    fn note(&self, written: &Poll<io::Result<usize>>) {
        self.watch.sent(written.is_ready());
        if let Poll::Ready(Ok(bytes)) = written {
            self.watch.wrote(*bytes);
        }
    }

    /// Reads and drops everything that a refused client still sends: closing with unread data sends a reset, and the
    /// client could lose the answer.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.poll_scratch(cx))? {}
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }

    /// Reads some bytes and drops them. Returns whether there were any.
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
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Hyper, which flushes each time that it runs, sees a disconnect by reading. It does not read while it holds
        // bytes behind the request that it answers. In HTTP/2 it always reads.
        if self.frames.is_none() && self.stream.is_closed(cx) {
            self.watch.gone();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
