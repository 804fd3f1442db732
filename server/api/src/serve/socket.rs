//! The socket of a connection as hyper reads and writes it: tells the watch what happens, looks at heads before hyper
//! parses them, and answers a client whose head came too late.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::head::{Heads, Misframed};
use super::watch::Watch;

/// What a client is told whose head does not come.
pub(super) const TOO_LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A socket, with what was read of it before.
pub(super) struct Socket {
    stream: TcpStream,
    before: Bytes,
    heads: Heads,
    watch: Arc<Watch>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, before: Bytes, heads: Heads, watch: Arc<Watch>) -> Self {
        Self { stream, before, heads, watch }
    }

    /// Answers in place of hyper, which is still waiting for a head, and ends the connection.
    fn refuse(&self, answer: &[u8]) -> io::Result<()> {
        let _ = self.stream.try_write(answer);
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Looks at what came.
    fn look(&mut self, came: &[u8]) -> io::Result<()> {
        if came.is_empty() || !self.watch.received() {
            return Ok(());
        }
        match self.heads.read(came) {
            Err(Misframed::TooLarge) => self.refuse(TOO_LARGE),
            Ok(()) => Ok(()),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.watch.expired() {
            return Poll::Ready(self.refuse(TOO_LATE));
        }
        let from = out.filled().len();
        if self.before.is_empty() {
            match Pin::new(&mut self.stream).poll_read(cx, out) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        } else {
            let len = self.before.len().min(out.remaining());
            out.put_slice(&self.before[..len]);
            self.before.advance(len);
        }
        let looked = self.look(&out.filled()[from..]);
        Poll::Ready(looked)
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
