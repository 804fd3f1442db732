//! PostgreSQL's wire protocol (version 3) on a separate port, for `psql`, drivers and tools: simple and extended
//! queries, portals, cancel requests, TLS. Statements are those of `quiver_sql` and read-only.
//!
//! `client_messages` splits the input into messages and limits their size before they are held; `startup` authenticates;
//! `session` is a connection after that, `statements` and `portal` are its state; `command` handles statements about
//! the connection; `params` and `encode` convert values, `plan` plans, `error` maps errors to SQLSTATEs. Our messages
//! are written by the crate `pgwire`. Those of clients are read here, since its decoder trusts their lengths.

mod cancel;
mod client_messages;
mod command;
mod encode;
mod error;
mod params;
mod plan;
mod portal;
mod scroll;
mod session;
mod startup;
mod statements;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body_memory::BodyBudget;
use crate::serve::{ServeSettings, Tls, accepted};
use crate::state::AppState;
use cancel::Cancels;

/// How long connections that are cut may take to notice.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// The port for PostgreSQL's wire protocol.
#[derive(Debug)]
pub struct PostgresListener {
    /// The socket, bound and listening.
    pub socket: TcpListener,
    /// What meets its connections, where there is TLS.
    pub tls: Option<Arc<Tls>>,
    /// What answers; nothing yet while the store is opened.
    pub app: Arc<OnceLock<Arc<AppState>>>,
    /// How long a connection may stay without a statement.
    pub idle: Duration,
    /// Memory for what all connections keep: messages that are not whole, prepared statements, values of portals.
    pub kept: BodyBudget,
}

/// What each connection is served with.
#[derive(Debug, Clone)]
struct With {
    tls: Option<Arc<Tls>>,
    app: Arc<OnceLock<Arc<AppState>>>,
    idle: Duration,
    kept: BodyBudget,
    settings: Arc<ServeSettings>,
    cancels: Arc<Cancels>,
    /// No further statements.
    stop: CancellationToken,
    /// The end at once.
    cut: CancellationToken,
}

/// Serves until `stop`, then lets statements finish within `drain_timeout` and cuts the rest.
pub fn serve_postgres(
    listener: PostgresListener,
    settings: ServeSettings,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let PostgresListener { socket, tls, app, idle, kept } = listener;
        let connections = TaskTracker::new();
        let drain_timeout = settings.drain_timeout;
        let with = With {
            tls,
            app,
            idle,
            kept,
            settings: Arc::new(settings),
            cancels: Arc::default(),
            stop: stop.clone(),
            cut: CancellationToken::new(),
        };
        while let Some((stream, peer)) = accepted(&socket, &stop).await {
            let Ok(place) = Arc::clone(&with.settings.places).try_acquire_owned() else {
                tracing::debug!(%peer, "too many connections");
                refuse(stream);
                continue;
            };
            let (with, cut) = (with.clone(), with.cut.clone());
            connections.spawn(async move {
                let _place = place;
                tokio::select! {
                    () = startup::run(stream, peer, with) => {}
                    () = cut.cancelled() => {}
                }
            });
        }
        drop(socket);
        connections.close();
        if tokio::time::timeout(drain_timeout, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), "some statements did not finish in time and are cut");
            with.cut.cancel();
            let _ = tokio::time::timeout(CUT_WITHIN, connections.wait()).await;
        }
    })
}

/// Tells a client beyond the bound so, as far as it can be told at once.
fn refuse(stream: TcpStream) {
    let mut out = bytes::BytesMut::new();
    error::Fault::fatal("53300", "too many connections").write(&mut out);
    let _ = stream.try_write(&out);
}
