//! An S3 server of our own in the test's process (`s3s-fs`: S3 over a folder), on a port that it picks, with
//! signatures checked. It counts requests, and can play dead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{Method, Request};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
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

/// A running S3 server with one bucket. Ends, and forgets everything, when dropped.
#[derive(Debug)]
pub struct S3Server {
    folder: tempfile::TempDir,
    address: SocketAddr,
    down: watch::Sender<bool>,
    part_reads: Arc<AtomicU64>,
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
        let part_reads = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(accept(listener, service, is_down, Arc::clone(&part_reads)));
        Self { folder, address, down, part_reads, task }
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

    /// Gives how many reads of parts' files it has seen.
    pub fn part_reads(&self) -> u64 {
        self.part_reads.load(Relaxed)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
        self.down.send_replace(true);
    }
}

async fn accept(listener: TcpListener, service: S3Service, down: watch::Receiver<bool>, part_reads: Arc<AtomicU64>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        if !*down.borrow() {
            tokio::spawn(serve(socket, service.clone(), down.clone(), Arc::clone(&part_reads)));
        }
    }
}

async fn serve(socket: TcpStream, service: S3Service, mut down: watch::Receiver<bool>, part_reads: Arc<AtomicU64>) {
    let service = service_fn(move |request: Request<Incoming>| {
        if request.method() == Method::GET && request.uri().path().ends_with(".parquet") {
            part_reads.fetch_add(1, Relaxed);
        }
        Service::call(&service, request)
    });
    let builder = Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = builder.serve_connection(TokioIo::new(socket), service) => {}
        _ = down.wait_for(|down| *down) => {}
    }
}
