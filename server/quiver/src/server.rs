//! The life of the server: bind, open, serve, drain, close.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum_router::Gate;
use futures::future::BoxFuture;
use quiver_api::body_memory::BodyBudget;
use quiver_api::startup::StartupResponder;
use quiver_api::{
    AppState, Listener, PostgresListener, RequestIds, ServeSettings, Tls, grpc_router, main_router, otlp_router, serve,
    serve_postgres, zipkin_router,
};
use quiver_types::{Clock, Error, Result, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::alerting::StoredHistory;
use crate::memory::memory_limit_bytes;
use crate::settings::{LoadedSettings, Settings, Span};
use crate::{process_info, wiring};

mod axum_router;

/// How long the last flush may take after requests are done; the rest stays in the WAL.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Smallest and largest flow-control window of an HTTP/2 connection in bytes: the default of the standard, and what a
/// fast sender can use.
const WINDOW_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The main port.
    pub http: SocketAddr,
    /// OTLP over HTTP.
    pub otlp_http: Option<SocketAddr>,
    /// OTLP over gRPC.
    pub otlp_grpc: Option<SocketAddr>,
    /// The separate port of Zipkin's API; `None`: off.
    pub zipkin: Option<SocketAddr>,
    /// The port of PostgreSQL's wire protocol; `None`: off.
    pub postgres: Option<SocketAddr>,
}

/// A server whose sockets are bound, so that clients can connect; their requests are answered once it runs.
#[derive(Debug)]
pub struct BoundServer {
    settings: Box<Settings>,
    http: TcpListener,
    otlp_http: Option<TcpListener>,
    otlp_grpc: Option<TcpListener>,
    zipkin: Option<TcpListener>,
    postgres: Option<TcpListener>,
    /// Where it listens.
    pub addresses: Addresses,
    /// Certificates; `None`: no TLS.
    pub tls: Option<Arc<Tls>>,
    before_requests: Option<Prepare>,
}

/// A step of the start that needs the whole server.
type Preparation = dyn FnOnce(&Arc<AppState>) + Send;

/// Runs before the first request is served.
struct Prepare(Box<Preparation>);

impl std::fmt::Debug for Prepare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepare")
    }
}

/// Says whether the server may listen beyond loopback: because of a setting, or because access control is on.
fn network_allowed(settings: &Settings) -> bool {
    settings.http.rbac_off_on_network || settings.rbac.mode == "on"
}

/// Parses an address, and checks that the server may listen on it.
fn allowed(name: &str, address: &str, settings: &Settings) -> Result<SocketAddr> {
    let parsed: SocketAddr = address.parse().map_err(|_| {
        // Names are not resolved: they may stand for several addresses, and for more than is meant.
        let port = address.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8800");
        Error::invalid(format!(
            "`{name}` is `{address}`; it must be an IP address and a port, such as `127.0.0.1:{port}`, or \
             `0.0.0.0:{port}` for all addresses"
        ))
    })?;
    if !parsed.ip().is_loopback() {
        if !network_allowed(settings) {
            return Err(Error::invalid(format!(
                "`{name}` is `{address}`, but without access control the server listens on loopback only; \
                 in a container, give --rbac-off-on-network"
            )));
        }
        if settings.tls.files().is_none() && settings.tls.required {
            return Err(Error::invalid(format!(
                "`{name}` is `{address}`, but `tls.required` is set and there is no `tls.certificate_file`"
            )));
        }
    }
    Ok(parsed)
}

/// Says which certificates or addresses a start would refuse, without listening.
///
/// # Errors
/// Those of [`BoundServer::bind`], except for addresses that are in use.
pub fn check(loaded: &LoadedSettings) -> Result<()> {
    let s = &loaded.settings;
    s.tls.files().map(|files| Tls::open(files, Arc::new(SystemClock))).transpose()?;
    let mut taken = vec![("http.listen".to_owned(), allowed("http.listen", &s.http.listen, s)?)];
    let extra = [
        ("otlp", "http_listen", &s.otlp.http_listen),
        ("otlp", "grpc_listen", &s.otlp.grpc_listen),
        ("traces", "zipkin_listen", &s.traces.zipkin_listen),
        ("postgres", "listen", &s.postgres.listen),
    ];
    // A start skips extra ports whose default address cannot be used.
    for (section, key, address) in extra.into_iter().filter(|(section, key, _)| loaded.is_given(section, key)) {
        if address.is_empty() {
            continue;
        }
        let name = format!("{section}.{key}");
        let parsed = allowed(&name, address, s)?;
        if let Some((other, _)) = taken.iter().find(|(_, other)| *other == parsed && parsed.port() != 0) {
            return Err(Error::invalid(format!("`{name}` is `{address}`, and so is `{other}`")));
        }
        taken.push((name, parsed));
    }
    Ok(())
}

async fn bind(name: &str, address: &str, settings: &Settings) -> Result<TcpListener> {
    let parsed = allowed(name, address, settings)?;
    if !parsed.ip().is_loopback() {
        if settings.tls.files().is_none() {
            tracing::warn!(
                address,
                "listening beyond this machine without TLS: passwords and tokens can be read on their way"
            );
        }
        if settings.rbac.mode != "on" {
            tracing::warn!(
                address,
                "listening beyond this machine WITHOUT access control: whoever reaches it may read and write everything"
            );
        }
    }
    TcpListener::bind(parsed).await.map_err(|e| Error::invalid(format!("cannot listen on `{address}` (`{name}`): {e}")))
}

/// Binds an extra port. If its address is the default and in use, it is skipped with a warning.
async fn bind_extra(loaded: &LoadedSettings, section: &str, key: &str, address: &str) -> Result<Option<TcpListener>> {
    if address.is_empty() {
        return Ok(None);
    }
    let name = format!("{section}.{key}");
    match bind(&name, address, &loaded.settings).await {
        Ok(socket) => Ok(Some(socket)),
        Err(e) if loaded.is_given(section, key) => Err(e),
        Err(e) => {
            tracing::warn!("{e}; going on without it");
            Ok(None)
        }
    }
}

/// File descriptors that connections must leave for the store: parts, WAL, catalog, and calls to the object store.
const FILES_RESERVE: u64 = 512;

/// Raises the limit of file descriptors, and gives the number of connections that leaves enough of them.
fn connections_max(wanted: usize) -> usize {
    let Some(files) = process_info::raise_file_limit() else { return wanted };
    let reserve = FILES_RESERVE.min(files / 2);
    let room = usize::try_from(files - reserve).unwrap_or(usize::MAX);
    let connections = room.min(wanted);
    tracing::info!(files, connections, "limit of open files, and most connections of all ports together");
    if connections < wanted {
        let text = "fewer connections than `http.connections_max`: raise the hard limit of open files (LimitNOFILE=)";
        tracing::info!(wanted, "{text}");
    }
    connections
}

fn serve_settings(settings: &Settings) -> ServeSettings {
    let h = &settings.http;
    let span = |span: Span| span.0.unwrap_or_default();
    let memory = memory_limit_bytes(settings);
    let connections_max = connections_max(h.connections_max).min(Semaphore::MAX_PERMITS);
    ServeSettings {
        places: Arc::new(Semaphore::new(connections_max)),
        connections_max,
        header_timeout: span(h.header_timeout),
        head_bytes_max: h.head_max.0 as usize,
        heads: BodyBudget::of_heads((memory / 32) as usize),
        windows: BodyBudget::of_windows((memory / 32) as usize, WINDOW_BYTES.1 as usize),
        window_bytes: (memory / 8192).clamp(WINDOW_BYTES.0, WINDOW_BYTES.1) as u32,
        keep_alive: span(h.keep_alive),
        body_rate_min: h.body_rate_min.0,
        body_grace: span(h.body_grace),
        send_timeout: span(h.send_timeout),
        drain_timeout: span(h.drain_timeout),
    }
}

impl BoundServer {
    /// Reads certificates and binds all sockets.
    ///
    /// # Errors
    /// Invalid: an address is malformed, in use, or not allowed; certificates cannot be used.
    pub async fn bind(loaded: &LoadedSettings) -> Result<Self> {
        let s = &loaded.settings;
        let tls = s.tls.files().map(|files| Tls::open(files, Arc::new(SystemClock))).transpose()?;
        let http = bind("http.listen", &s.http.listen, s).await?;
        let otlp_http = bind_extra(loaded, "otlp", "http_listen", &s.otlp.http_listen).await?;
        let otlp_grpc = bind_extra(loaded, "otlp", "grpc_listen", &s.otlp.grpc_listen).await?;
        let zipkin = bind_extra(loaded, "traces", "zipkin_listen", &s.traces.zipkin_listen).await?;
        let postgres = bind_extra(loaded, "postgres", "listen", &s.postgres.listen).await?;
        let of = |socket: &TcpListener| {
            socket.local_addr().map_err(|e| Error::internal("a bound socket has no address").with_source(e))
        };
        let addresses = Addresses {
            http: of(&http)?,
            otlp_http: otlp_http.as_ref().map(of).transpose()?,
            otlp_grpc: otlp_grpc.as_ref().map(of).transpose()?,
            zipkin: zipkin.as_ref().map(of).transpose()?,
            postgres: postgres.as_ref().map(of).transpose()?,
        };
        let (settings, before_requests) = (Box::new(s.clone()), None);
        Ok(Self { settings, http, otlp_http, otlp_grpc, zipkin, postgres, addresses, tls, before_requests })
    }

    /// Sets what to do once the store is open and before the first request is served.
    #[must_use]
    pub fn prepared(mut self, prepare: impl FnOnce(&Arc<AppState>) + Send + 'static) -> Self {
        self.before_requests = Some(Prepare(Box::new(prepare)));
        self
    }

    /// Opens the store, serves until `stop`, drains, closes. While the store replays its log, `/health/live` and
    /// `/metrics` answer, and everything else with 503. `opened` is called once requests are served.
    ///
    /// # Errors
    /// Those of opening the store; Conflict: another server took the store, so this one stopped.
    pub async fn run(
        self,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
        opened: impl FnOnce(&Arc<AppState>),
    ) -> Result<()> {
        let serve_settings = serve_settings(&self.settings);
        let serving = CancellationToken::new();
        let mut tasks = Vec::new();
        let starting = Arc::new(StartupResponder {
            ids: RequestIds::default(),
            version: process_info::VERSION,
            process_metrics: process_info::write_metrics,
        });
        let gates = [
            (Some(self.http), Gate::new(main_router, &starting)),
            (self.otlp_http, Gate::new(otlp_router, &starting)),
            (self.otlp_grpc, Gate::new(grpc_router, &starting)),
            (self.zipkin, Gate::new(zipkin_router, &starting)),
        ];
        let mut openers = Vec::new();
        for (socket, gate) in gates {
            let Some(socket) = socket else { continue };
            let listener = Listener { socket, router: gate.router(), tls: self.tls.clone() };
            tasks.push(tokio::spawn(serve(listener, serve_settings.clone(), serving.clone())));
            openers.push(gate);
        }
        let postgres = Arc::new(OnceLock::new());
        if let Some(socket) = self.postgres {
            let idle = self.settings.postgres.idle_timeout.0.unwrap_or(Duration::MAX);
            let kept = BodyBudget::of_heads((memory_limit_bytes(&self.settings) / 32) as usize);
            let listener = PostgresListener { socket, tls: self.tls.clone(), app: Arc::clone(&postgres), idle, kept };
            tasks.push(tokio::spawn(serve_postgres(listener, serve_settings.clone(), serving.clone())));
        }
        if let Some(tls) = &self.tls {
            let every = self.settings.tls.reload_interval.0.unwrap_or_default();
            tokio::spawn(Arc::clone(tls).follow(every, serving.clone()));
        }
        let built = tokio::select! {
            built = wiring::build_server(&self.settings, self.addresses.http, clock) => built,
            () = stop.cancelled() => return Ok(()),
        };
        let app = match built {
            Ok(app) => app,
            Err(e) => {
                serving.cancel();
                return Err(e);
            }
        };
        if let Some(Prepare(prepare)) = self.before_requests {
            prepare(&app);
        }
        // Set only here, and before HTTP reports that the start is over.
        let _ = postgres.set(Arc::clone(&app));
        for gate in openers {
            gate.open(&app);
        }
        let usage = follow(&app, &self.settings, &serving);
        let service_labels = app.alertd.router.service_labels().to_vec();
        app.alertd.start(Arc::new(StoredHistory { store: Arc::clone(&app.engines.store), service_labels }), &serving);
        opened(&app);
        let lost = tokio::select! {
            () = stop.cancelled() => None,
            lost = app.engines.store.lost() => Some(lost),
        };
        app.process.stopping.store(true, Relaxed);
        let lame_duck = self.settings.http.lame_duck.0.unwrap_or_default();
        if !lame_duck.is_zero() && lost.is_none() {
            tracing::info!(?lame_duck, "stopping: not ready any more, and serving what still comes");
            tokio::time::sleep(lame_duck).await;
        }
        tracing::info!("stopping: no new connections, letting requests finish");
        serving.cancel();
        close(&app, tasks, usage, lost).await
    }
}

/// Waits until nobody is served any more, writes down what was asked last, and closes the store. Fails with `lost`: another
/// server took the store.
async fn close(
    app: &Arc<AppState>,
    listeners: Vec<JoinHandle<()>>,
    usage: JoinHandle<()>,
    lost: Option<Error>,
) -> Result<()> {
    for listener in listeners {
        if let Err(error) = listener.await {
            tracing::error!(%error, "a listener met a fault of ours");
        }
    }
    if tokio::time::timeout(CLOSE_WITHIN, app.alertd.close()).await.is_err() {
        tracing::warn!("messages of alerting are cut off; their receivers may get them again after the next start");
    }
    let rest = async {
        // It may still be writing; wait until that is done.
        let _ = usage.await;
        quiver_api::usage::writer::finish(app).await;
    };
    // If another server took the store, nothing may be written any more.
    if lost.is_none() && tokio::time::timeout(CLOSE_WITHIN, rest).await.is_err() {
        tracing::warn!("what the server was asked last could not be written down in time");
    }
    app.engines.store.close(CLOSE_WITHIN).await;
    tracing::info!("stopped");
    lost.map_or(Ok(()), Err)
}

/// Makes the future of a task of the server.
type Task = fn(&Arc<AppState>, CancellationToken) -> BoxFuture<'static, ()>;

/// Starts the tasks that follow changes of configuration and discover resources; gives the task that records usage.
fn follow(app: &Arc<AppState>, settings: &Settings, serving: &CancellationToken) -> JoinHandle<()> {
    let spawn = |name: &'static str, task: Task| {
        let (state, until) = (Arc::clone(app), serving.clone());
        app.alertd.metrics.background.spawn(name, serving, move || task(&state, until.clone()))
    };
    spawn("follower of configuration", |app, stop| Arc::clone(&app.effects).follow(app.config.clone(), stop));
    spawn("follower of other servers", |app, stop| {
        quiver_api::peer_servers::follow(app.config.clone(), app.identities.clone(), stop)
    });
    spawn("end of queries whose rights were withdrawn", |app, stop| {
        quiver_api::revoked_rights::follow(Arc::clone(app), stop)
    });
    spawn("carrying out of jobs", |app, stop| quiver_api::jobs::run(Arc::clone(app), stop));
    if app.identities.is_some() {
        spawn("follower of accounts", |app, stop| match &app.identities {
            Some(identities) => Arc::clone(identities).follow(stop),
            None => Box::pin(std::future::ready(())),
        });
        spawn("record of observations", |app, stop| match &app.identities {
            Some(identities) => Arc::clone(identities).keep_observations(stop),
            None => Box::pin(std::future::ready(())),
        });
    }
    let (state, until) = (Arc::clone(app), serving.clone());
    let every = settings.resources.discovery_interval.0.unwrap_or_default();
    let discover = move || quiver_api::discovery::follow(Arc::clone(&state), every, until.clone());
    app.alertd.metrics.background.spawn("discovery of resources", serving, discover);
    let (state, until) = (Arc::clone(app), serving.clone());
    let every = settings.usage.interval.0.unwrap_or_default();
    let usage = move || quiver_api::usage::writer::follow(Arc::clone(&state), every, until.clone());
    app.alertd.metrics.background.spawn("record of usage", serving, usage)
}
