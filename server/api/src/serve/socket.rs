//! The socket of a connection as hyper reads and writes it: tells the watch what happens, looks at heads before hyper
//! parses them, and answers a client whose head came too late.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head::{Heads, Misframed};
use super::stream::Stream;
use super::watch::Watch;

/// What a client is told whose head does not come.
pub(super) const TOO_LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket, with what was read of it before.
pub(super) struct Socket {
    stream: Stream,
    before: Bytes,
    heads: Heads,
    watch: Arc<Watch>,
    /// Whether the client was answered here, in place of hyper, which still waits for a head.
    refused: bool,
}

impl Socket {
    pub(super) fn new(stream: Stream, before: Bytes, heads: Heads, watch: Arc<Watch>) -> Self {
        Self { stream, before, heads, watch, refused: false }
    }

    /// Says whether what came is a head that is not let through.
    fn is_refused(&mut self, came: &[u8]) -> bool {
        !came.is_empty() && self.watch.received() && self.heads.read(came) == Err(Misframed::TooLarge)
    }

    /// Reads to the end of what a refused client still sends: to close before would take the answer back.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        loop {
            let mut scratch = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut scratch))?;
            if scratch.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
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
        let from = out.filled().len();
        if self.before.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        } else {
            let len = self.before.len().min(out.remaining());
            out.put_slice(&self.before[..len]);
            self.before.advance(len);
        }
        if self.is_refused(&out.filled()[from..]) {
            self.refused = true;
            out.set_filled(from);
            self.stream.say(TOO_LARGE);
            let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
            return self.poll_rest(cx);
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
