//! Listeners: an accept loop with one limit on the connections of all ports, supervised connections (`connection`), and
//! a stop that lets requests finish within a time limit.

mod connection;
mod frames;
mod framing;
mod handshake;
mod head;
pub(crate) mod pace;
mod paced;
mod rest;
mod socket;
mod stream;
mod tls;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bodies::BodyBudget;

pub(crate) use handshake::accept;
pub(crate) use stream::{Stream, Transport};
pub use tls::{Tls, TlsFiles};

/// What a connection beyond the bound is told.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 22\r\n\r\ntoo many connections.\n";
/// Connections that are told so at once; more are closed without a word.
const REFUSALS_MAX: usize = 8;
/// How long one that is told so may take to read it.
const REFUSAL_WITHIN: Duration = Duration::from_secs(1);
/// How long the accept loop rests when the system gives no connection (no file descriptors, no memory).
const REST: Duration = Duration::from_millis(100);
/// How long connections that are cut may take to notice.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// Bounds of connections, the same on each port.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// A place for each connection of all ports together; those beyond get 503.
    pub places: Arc<Semaphore>,
    /// How many places there are.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request, the first one counted from when it connected.
    pub header_timeout: Duration,
    /// Most bytes of a head: request line, names and values. What is not the token may have half of them.
    pub head_bytes_max: usize,
    /// Memory for the heads of all ports together: of those that are begun and those whose requests are under way.
    pub heads: BodyBudget,
    /// Bytes that a connection of HTTP/2 may send before any of them is read.
    pub window_bytes: u32,
    /// Memory for what connections of HTTP/2 send: windows while requests with bodies are under way, and frames that are
    /// not whole.
    pub windows: BodyBudget,
    /// How long a connection may stay without a request.
    pub keep_alive: Duration,
    /// Bytes per second that the sender of a body must keep up; 0: any, as long as it is not silent for `body_grace`.
    pub body_rate_min: u64,
    /// How long a sender may be slower than that.
    pub body_grace: Duration,
    /// How long a reader may take nothing of its answer.
    pub send_timeout: Duration,
    /// How long requests may go on after the stop began.
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

/// A bound socket and what answers on it.
#[derive(Debug)]
pub struct Listener {
    /// The socket, bound and listening.
    pub socket: TcpListener,
    /// What answers requests of its connections.
    pub router: Router,
    /// What meets its connections, where there is TLS.
    pub tls: Option<Arc<Tls>>,
}

/// Serves until `stop`, then lets what runs finish within `drain_timeout` and cuts the rest.
pub async fn serve(listener: Listener, settings: ServeSettings, stop: CancellationToken) {
    let Listener { socket, router, tls } = listener;
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let drain_timeout = settings.drain_timeout;
    let settings = Arc::new(settings);
    let with = connection::With { router, settings: Arc::clone(&settings), tls };
    while let Some((stream, peer)) = accepted(&socket, &stop).await {
        let Ok(place) = Arc::clone(&settings.places).try_acquire_owned() else {
            tracing::debug!(%peer, "too many connections");
            // With TLS a word would cost a handshake, which is the dearest part of a connection.
            let told = Arc::clone(&refusals).try_acquire_owned().ok().filter(|_| with.tls.is_none());
            if let Some(refusal) = told {
                connections.spawn(async move {
                    let _refusal = refusal;
                    let _ = tokio::time::timeout(REFUSAL_WITHIN, refuse(stream, FULL)).await;
                });
            }
            continue;
        };
        let ends = connection::Ends { stop: stop.clone(), cut: cut.clone() };
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
                // Out of file descriptors and the like: wait instead of spinning.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Says why a connection is not served. The rest of what comes is read, as closing before would take the answer back.
async fn refuse(mut stream: TcpStream, text: &[u8]) -> std::io::Result<()> {
    stream.write_all(text).await?;
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    while stream.read(&mut scratch).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests;
