//! Listeners: an accept loop with bounds on connections and headers, and a stop that lets requests finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::router::Peer;

/// Bounds of a listener.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Connections at once; more wait in the kernel.
    pub connections_max: usize,
    /// How long a client may take to send its headers.
    pub header_timeout: Duration,
    /// How long requests may go on after the stop began.
    pub drain_timeout: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            header_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(15),
        }
    }
}

/// A bound socket and what answers on it.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// What answers.
    pub router: Router,
}

/// Serves until `stop`, then lets what runs finish within `drain_timeout`.
pub async fn serve(listener: Listener, settings: ServeSettings, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(settings.header_timeout).max_headers(100);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).max_header_list_size(64 * 1024);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener.socket, &places) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let router = listener.router.clone();
        let service =
            TowerToHyperService::new(tower::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(ConnectInfo::<Peer>(peer));
                router.clone().oneshot(request.map(axum::body::Body::new))
            }));
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(settings.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time and are cut");
    }
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(socket: &TcpListener, places: &Arc<Semaphore>) -> Option<Accepted> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, peer)) => {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
            }
            Some((stream, peer, place))
        }
        Err(error) => {
            // Out of file descriptors and the like: wait instead of spinning (promise F8).
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}
