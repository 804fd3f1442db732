//! Falls back to `HELO` for servers without SMTP extensions: the client library only sends `EHLO`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is said instead of the first word, which is as long.
const WORD: &[u8] = b"HELO";

/// A connection on which the first word is `HELO`.
#[derive(Debug)]
pub(super) struct Helo {
    stream: TcpStream,
    /// Bytes of the first word that were said.
    said: usize,
}

impl Helo {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, said: 0 }
    }
}

impl AsyncRead for Helo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Helo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let left = &WORD[self.said..];
        let changed = left.len().min(buf.len());
        if changed == 0 {
            return Pin::new(&mut self.stream).poll_write(cx, buf);
        }
        let line = [&left[..changed], &buf[changed..]].concat();
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &line))?;
        self.said += written.min(changed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncTokioStream for Helo {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}
