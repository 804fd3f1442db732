//! An S3 server of our own in the test's process (`s3s-fs`: S3 over a folder), on a port that it picks, with
//! signatures checked. It counts requests, can play dead, and has a proxy before it that plays bad: slow answers, errors,
//! connections that break before, after, or in the middle of the work, and wrong entity tags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Options;

const BUCKET: &str = "telemetry";
const PREFIX: &str = "some/where";
const ACCESS_KEY: &str = "test-key";
const SECRET_KEY: &str = "test-secret";

/// What the proxy does to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Serves it late.
    Slow,
    /// 500, and does nothing.
    Failure,
    /// 503 `SlowDown`, and does nothing.
    SlowDown,
    /// Breaks the connection, and does nothing.
    Reset,
    /// Does the work, then breaks the connection: the answer is lost.
    LostAnswer,
    /// Does the work, and breaks the connection in the middle of the answer's body.
    CutBody,
    /// Answers an upload with a wrong entity tag.
    WrongTag,
}

/// All faults.
pub const FAULTS: [Fault; 7] =
    [Fault::Slow, Fault::Failure, Fault::SlowDown, Fault::Reset, Fault::LostAnswer, Fault::CutBody, Fault::WrongTag];

/// How bad the proxy is.
#[derive(Debug)]
struct Badness {
    dice: SmallRng,
    /// Share of the requests that meet a fault.
    share: f64,
    faults: Vec<Fault>,
    /// What was done so far.
    done: std::collections::BTreeMap<Fault, u64>,
}

/// The proxy before the server.
#[derive(Debug, Clone)]
struct Proxy {
    badness: Arc<Mutex<Badness>>,
    part_reads: Arc<AtomicU64>,
    /// `s3s-fs` looks and writes in two steps; S3 does it in one.
    conditional: Arc<tokio::sync::Mutex<()>>,
}

impl Proxy {
    fn lock(&self) -> std::sync::MutexGuard<'_, Badness> {
        self.badness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws what becomes of a request.
    fn draw(&self) -> (Option<Fault>, u64) {
        let mut guard = self.lock();
        let b = &mut *guard;
        let hit = b.share > 0.0 && b.share > b.dice.random_range(0.0..1.0);
        let (at, number) = (b.dice.random_range(0..b.faults.len().max(1)), b.dice.random_range(0..400));
        let fault = b.faults.get(at).copied().filter(|_| hit);
        if let Some(fault) = fault {
            *b.done.entry(fault).or_default() += 1;
        }
        (fault, number)
    }

    async fn serve(&self, service: &S3Service, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let is_upload = request.method() == Method::PUT;
        if request.method() == Method::GET && request.uri().path().ends_with(".parquet") {
            self.part_reads.fetch_add(1, Relaxed);
        }
        let (fault, number) = self.draw();
        let answer = |status: StatusCode, text: &'static str| {
            let body = Body::from(Bytes::from_static(text.as_bytes()));
            Response::builder().status(status).header(header::CONTENT_TYPE, "application/xml").body(body)
        };
        match fault {
            Some(Fault::Slow) => tokio::time::sleep(Duration::from_millis(number)).await,
            Some(Fault::Failure) => {
                return answer(StatusCode::INTERNAL_SERVER_ERROR, "<Error><Code>InternalError</Code></Error>")
                    .map_err(|_| Broken);
            }
            Some(Fault::SlowDown) => {
                return answer(StatusCode::SERVICE_UNAVAILABLE, "<Error><Code>SlowDown</Code></Error>")
                    .map_err(|_| Broken);
            }
            Some(Fault::Reset) => return Err(Broken),
            _ => {}
        }
        let condition = is_upload && request.headers().contains_key(header::IF_NONE_MATCH);
        let alone = if condition { Some(self.conditional.lock().await) } else { None };
        let response = Service::call(service, request).await.map_err(|_| Broken)?;
        drop(alone);
        match fault {
            Some(Fault::LostAnswer) => Err(Broken),
            Some(Fault::CutBody) => {
                let (mut head, body) = response.into_parts();
                let whole = body.collect().await.map_err(|_| Broken)?.to_bytes();
                if whole.len() < 2 {
                    return Err(Broken);
                }
                head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
                let half = Frame::data(whole.slice(..whole.len() / 2));
                let body = StreamBody::new(futures::stream::iter([Ok(half), Err(Broken)]));
                Ok(Response::from_parts(head, Body::http_body_unsync(body)))
            }
            Some(Fault::WrongTag) if is_upload => {
                let mut response = response;
                let wrong = HeaderValue::from_static("\"00000000000000000000000000000000\"");
                response.headers_mut().insert(header::ETAG, wrong);
                Ok(response)
            }
            _ => Ok(response),
        }
    }
}

/// The connection breaks.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken on purpose")
    }
}

impl std::error::Error for Broken {}

/// A running S3 server with one bucket. Ends, and forgets everything, when dropped.
#[derive(Debug)]
pub struct S3Server {
    folder: tempfile::TempDir,
    address: SocketAddr,
    down: watch::Sender<bool>,
    proxy: Proxy,
    task: JoinHandle<()>,
}

impl S3Server {
    /// Starts one.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("a store over the folder"));
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (down, is_down) = watch::channel(false);
        let badness = Badness {
            dice: SmallRng::seed_from_u64(0),
            share: 0.0,
            faults: vec![],
            done: std::collections::BTreeMap::new(),
        };
        let proxy =
            Proxy { badness: Arc::new(Mutex::new(badness)), part_reads: Arc::default(), conditional: Arc::default() };
        let task = tokio::spawn(accept(listener, service, is_down, proxy.clone()));
        Self { folder, address, down, proxy, task }
    }

    /// Gives what makes a server of ours use it: flag and AWS variables.
    pub fn options(&self) -> Options {
        Options::default()
            .args(&["--store", &self.url()])
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.address))
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_REGION", "us-east-1")
    }

    /// Gives the store's URL.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}/{PREFIX}")
    }

    /// Gives the folder in which the objects lie as files.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join(BUCKET).join(PREFIX)
    }

    /// Ends all connections, and every new one at once, until [`S3Server::revive`].
    pub fn kill(&self) {
        self.down.send_replace(true);
    }

    /// Serves again.
    pub fn revive(&self) {
        self.down.send_replace(false);
    }

    /// Lets a share of all requests meet a fault, by seed, until [`S3Server::behave`].
    pub fn misbehave(&self, seed: u64, share: f64, faults: &[Fault]) {
        let mut badness = self.proxy.lock();
        badness.dice = SmallRng::seed_from_u64(seed);
        (badness.share, badness.faults) = (share, faults.to_vec());
    }

    /// Gives how many kinds of faults were met so far.
    pub fn faults_met(&self) -> usize {
        self.proxy.lock().done.len()
    }

    /// Ends all faults; gives how often each was met.
    pub fn behave(&self) -> Vec<(Fault, u64)> {
        let mut badness = self.proxy.lock();
        badness.share = 0.0;
        badness.done.iter().map(|(fault, count)| (*fault, *count)).collect()
    }

    /// Gives how many reads of parts' files it has seen.
    pub fn part_reads(&self) -> u64 {
        self.proxy.part_reads.load(Relaxed)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
        self.down.send_replace(true);
    }
}

async fn accept(listener: TcpListener, service: S3Service, down: watch::Receiver<bool>, proxy: Proxy) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        if !*down.borrow() {
            tokio::spawn(serve(socket, service.clone(), down.clone(), proxy.clone()));
        }
    }
}

async fn serve(socket: TcpStream, service: S3Service, mut down: watch::Receiver<bool>, proxy: Proxy) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, service) = (proxy.clone(), service.clone());
        async move { proxy.serve(&service, request).await }
    });
    let builder = Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = builder.serve_connection(TokioIo::new(socket), service) => {}
        _ = down.wait_for(|down| *down) => {}
    }
}
