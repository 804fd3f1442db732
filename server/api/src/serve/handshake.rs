//! Limits what a client sends before the TLS handshake is complete. TLS buffers a handshake message until all of it
//! has arrived, up to 64 KiB for each client that never finishes one; so these bytes are limited, and count against
//! the budget of request heads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::body_memory::{BodyBudget, Share};

/// Most bytes that a client may send during the handshake: its keys, and its certificates if it has any.
const BYTES_MAX: usize = 64 * 1024;

/// A socket beneath TLS.
pub(crate) struct HandshakeStream {
    inner: TcpStream,
    /// `None` once the handshake is complete.
    handshake: Option<Box<Handshake>>,
}

struct Handshake {
    read: usize,
    share: Share,
}

/// Performs the TLS handshake within the budget of request heads. The caller limits its time.
pub(crate) async fn accept(
    acceptor: &TlsAcceptor,
    inner: TcpStream,
    heads: &BodyBudget,
) -> io::Result<TlsStream<HandshakeStream>> {
    let handshake = Some(Box::new(Handshake { read: 0, share: heads.share() }));
    let mut stream = acceptor.accept(HandshakeStream { inner, handshake }).await?;
    stream.get_mut().0.handshake = None;
    Ok(stream)
}

impl Handshake {
    fn got(&mut self, bytes: usize) -> io::Result<()> {
        self.read += bytes;
        if self.read > BYTES_MAX {
            return Err(io::Error::other(format!("the handshake is longer than {BYTES_MAX} bytes")));
        }
        if !self.share.try_hold(self.read) {
            return Err(io::Error::other("the memory for heads and handshakes is used up"));
        }
        Ok(())
    }
}

impl HandshakeStream {
    /// The socket below.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.inner
    }
}

impl AsyncRead for HandshakeStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, out))?;
        let read = out.filled().len() - before;
        Poll::Ready(this.handshake.as_mut().map_or(Ok(()), |handshake| handshake.got(read)))
    }
}

impl AsyncWrite for HandshakeStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_bounded() {
        let heads = BodyBudget::of_heads(0);
        let begin = || Handshake { read: 0, share: heads.share() };
        let mut one = begin();
        for _ in 0..BYTES_MAX / 1024 {
            one.got(1024).unwrap();
        }
        assert_eq!((one.read, one.share.held_bytes()), (BYTES_MAX, BYTES_MAX));
        one.got(0).unwrap();
        let refused = one.got(1).unwrap_err();
        assert_eq!(refused.to_string(), "the handshake is longer than 65536 bytes");
        assert!(begin().got(BYTES_MAX + 1).is_err());
        assert!(begin().got(BYTES_MAX).is_ok());
    }

    /// Clients that begin handshakes and finish none share the budget of request heads, and give it back when they
    /// leave.
    #[test]
    fn handshakes_share_the_memory_of_heads() {
        let heads = BodyBudget::of_heads(0);
        let mut all = Vec::new();
        let refused = loop {
            let mut next = Handshake { read: 0, share: heads.share() };
            match next.got(BYTES_MAX) {
                Ok(()) => all.push(next),
                Err(error) => break error,
            }
            assert!(all.len() < 10_000, "nothing is counted");
        };
        assert_eq!(refused.to_string(), "the memory for heads and handshakes is used up");
        assert!(all.len() > 10, "{} at once", all.len());
        let mut small = Handshake { read: 0, share: heads.share() };
        small.got(512).expect("a small one has room");
        all.pop();
        assert!(Handshake { read: 0, share: heads.share() }.got(BYTES_MAX).is_ok());
    }
}
