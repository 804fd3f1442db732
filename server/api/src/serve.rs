//! Listeners: an accept loop with one limit on the connections of all ports, connection tasks (`connection`), and a
//! shutdown that lets requests finish within a time limit.

mod connection;
mod deadlines;
mod frames;
mod framing;
mod handshake;
pub(crate) mod minimum_rate;
mod paced_body;
mod request_head;
mod response_timeout;
mod slashes;
pub(crate) mod small_chunks;
mod socket;
mod stream;
mod tls;
mod unread_body;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use quiver_types::LogPace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body_memory::BodyBudget;

pub(crate) use handshake::accept;
pub(crate) use stream::{Stream, Transport};
pub use tls::{Tls, TlsFiles};

/// Sent to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 22\r\n\r\ntoo many connections.\n";
/// How many refused connections are sent that text at once; further ones are closed without it.
const REFUSALS_MAX: usize = 8;
/// How long a refused connection may take to read it.
const REFUSAL_WITHIN: Duration = Duration::from_secs(1);
/// How long the accept loop pauses after an error of the system (no file descriptors, no memory).
const REST: Duration = Duration::from_millis(100);
/// Of connections that cannot be accepted, on any port: it goes on for as long as descriptors are short.
static UNACCEPTED: LogPace = LogPace::new();
/// How long aborted connections may take to end.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// Limits of connections, the same on each port.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// A permit for each connection of all ports together; connections beyond get 503.
    pub places: Arc<Semaphore>,
    /// The number of permits.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request. For the first one this counts from the connect.
    pub header_timeout: Duration,
    /// Most bytes of a head: request line, field names and values. Without the `Authorization` field it may have half
    /// of them.
    pub head_bytes_max: usize,
    /// Memory for heads on all ports together: the incomplete ones and those whose requests are under way.
    pub heads: BodyBudget,
    /// Bytes that an HTTP/2 connection may send before any of them is read.
    pub window_bytes: u32,
    /// Memory for what HTTP/2 connections send: a window while requests with bodies are under way, and incomplete
    /// frames.
    pub windows: BodyBudget,
    /// How long a connection may stay open without a request.
    pub keep_alive: Duration,
    /// Minimum rate of a request body in bytes per second; 0: any rate, as long as the sender is not silent for
    /// `body_grace`.
    pub body_rate_min: u64,
    /// How long a sender may be slower than that.
    pub body_grace: Duration,
    /// How long a client may read nothing of its response.
    pub send_timeout: Duration,
    /// How long requests may go on after a shutdown began.
    pub drain_timeout: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(20_000)),
            connections_max: 20_000,
            header_timeout: Duration::from_secs(10),
            head_bytes_max: 32 * 1024,
            heads: BodyBudget::of_heads(64 << 20),
            window_bytes: 1 << 20,
            windows: BodyBudget::of_windows(256 << 20, 1 << 20),
            keep_alive: Duration::from_mins(2),
            body_rate_min: 1024,
            body_grace: Duration::from_secs(10),
            send_timeout: Duration::from_mins(1),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// A bound socket and the router that serves it.
#[derive(Debug)]
pub struct Listener {
    /// The socket, bound and listening.
    pub socket: TcpListener,
    /// Handles the requests of its connections.
    pub router: Router,
    /// `None`: without TLS.
    pub tls: Option<Arc<Tls>>,
}

/// Serves until `stop`, then lets requests finish within `drain_timeout` and aborts the rest.
pub fn serve(listener: Listener, settings: ServeSettings, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let Listener { socket, router, tls } = listener;
        let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let drain_timeout = settings.drain_timeout;
        let settings = Arc::new(settings);
        let with = connection::ListenerContext { router, settings: Arc::clone(&settings), tls };
        while let Some((stream, peer)) = accepted(&socket, &stop).await {
            let Ok(place) = Arc::clone(&settings.places).try_acquire_owned() else {
                tracing::debug!(%peer, "too many connections");
                // With TLS the text would cost a handshake, the most expensive part of a connection.
                let told = Arc::clone(&refusals).try_acquire_owned().ok().filter(|_| with.tls.is_none());
                if let Some(refusal) = told {
                    connections.spawn(async move {
                        let _refusal = refusal;
                        let _ = tokio::time::timeout(REFUSAL_WITHIN, refuse(stream, FULL)).await;
                    });
                }
                continue;
            };
            let ends = connection::ShutdownTokens { stop: stop.clone(), cut: cut.clone() };
            let connection = connection::run(stream, peer, with.clone(), ends);
            connections.spawn(async move {
                let _place = place;
                connection.await;
            });
        }
        drop(socket);
        connections.close();
        if tokio::time::timeout(drain_timeout, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), "some requests did not finish in time and are cut");
            cut.cancel();
            let _ = tokio::time::timeout(CUT_WITHIN, connections.wait()).await;
        }
    })
}

/// Waits for the next connection; `None` once the server stops.
pub(crate) async fn accepted(socket: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = stop.cancelled() => return None,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => {
                // Out of file descriptors and the like: pause instead of spinning.
                if let Some(left_out) = UNACCEPTED.turn(&error.kind().to_string()) {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Tells a client why its connection is refused. What it has sent is read first: closing with unread data sends a
/// reset, and the client could lose the answer.
async fn refuse(mut stream: TcpStream, text: &[u8]) -> std::io::Result<()> {
    stream.write_all(text).await?;
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    while stream.read(&mut scratch).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests;
