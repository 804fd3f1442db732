//! The byte stream of a connection, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::handshake::{HandshakeStream, accept};
use super::tls::{Tls, name_of};
use crate::body_memory::BodyBudget;

/// The first byte of a TLS connection: the record type of the handshake.
const HANDSHAKE: u8 = 22;
/// How often a connection that is not read is asked whether it is closed.
const CLOSED_LOOK: Duration = Duration::from_millis(50);
/// Sent to a client without TLS on a port that requires it.
pub(super) const NO_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 51\r\n\r\nthis port speaks TLS: use https:// in the address.\n";

/// What TLS knows about a connection. Each of its requests has it as an extension.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transport {
    /// Whether the connection uses TLS.
    pub(crate) encrypted: bool,
    /// The common name in the client's certificate, signed by one of the configured authorities.
    pub(crate) client: Option<Arc<str>>,
}

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<HandshakeStream>>),
}

/// The result of beginning a connection.
pub(super) enum ConnectionStart {
    /// Ready to be read.
    Well(Stream),
    /// The client does not speak TLS, which is required.
    Plaintext(TcpStream),
}

impl Stream {
    /// Begins a connection, with TLS if it is configured. The caller limits its time.
    pub(super) async fn begin(stream: TcpStream, tls: Option<&Tls>, heads: &BodyBudget) -> io::Result<ConnectionStart> {
        let Some(tls) = tls else { return Ok(ConnectionStart::Well(Self::Plain(stream))) };
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] != HANDSHAKE {
            return Ok(ConnectionStart::Plaintext(stream));
        }
        let stream = accept(&tls.acceptor(), stream, heads).await?;
        Ok(ConnectionStart::Well(Self::Tls(Box::new(stream))))
    }

    /// What is known about the client.
    pub(crate) fn transport(&self) -> Transport {
        let Self::Tls(stream) = self else { return Transport::default() };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        Transport { encrypted: true, client: certificate.and_then(name_of) }
    }

    /// The socket below TLS.
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0.socket(),
        }
    }

    /// Whether the client has closed its side, as the system tells without reading what was sent before. If not, the
    /// task is woken when there is something to read, or an end.
    pub(super) fn is_closed(&self, cx: &mut Context<'_>) -> bool {
        let socket = self.socket();
        if socket.poll_read_ready(cx).is_pending() {
            return false;
        }
        let mut ready = pin!(socket.ready(Interest::READABLE));
        matches!(ready.as_mut().poll(cx), Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Waits until the client has closed its side.
    pub(crate) async fn closed(&mut self) {
        // What was sent keeps the socket ready, so that nothing would wake the task.
        while !self.is_closed(&mut Context::from_waker(Waker::noop())) {
            tokio::time::sleep(CLOSED_LOOK).await;
        }
    }

    /// Sends a last text, as far as the socket takes it without waiting.
    pub(super) fn say(&mut self, text: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut *self).poll_write(&mut cx, text);
        let _ = Pin::new(self).poll_flush(&mut cx);
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, out),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, data),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn who_goes_away_is_seen_behind_what_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut stream = Stream::Plain(listener.accept().await.unwrap().0);
        client.write_all(&[7; 1000]).await.unwrap();
        assert!(timeout(4 * CLOSED_LOOK, stream.closed()).await.is_err(), "it is there");
        drop(client);
        timeout(Duration::from_mins(1), stream.closed()).await.expect("it is gone");
    }

    /// If the stated length were wrong, a client would wait for more or cut the text.
    #[test]
    fn what_clients_without_tls_are_told_is_a_whole_answer() {
        let text = std::str::from_utf8(NO_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        assert_eq!(length.parse::<usize>(), Ok(body.len()));
        assert!(head.starts_with("HTTP/1.1 400 ") && body.ends_with('\n'), "{text}");
    }
}
