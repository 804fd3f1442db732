//! The object store behind one wrapper: a local directory whose files and directories are synced, or S3 by
//! `object_store`, with bounded concurrency, retries with jitter and budget, and every upload verified.
//!
//! Objects that say who the master is are created only once (`If-None-Match: *`, or a link to a name that must be free).

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig};
use tokio::sync::Semaphore;
use url::Url;

use crate::error::{Context, Error, ErrorKind, Result, io_error};
use crate::metrics::METRICS;
use crate::settings::StoreSettings;

#[cfg(test)]
pub(crate) mod faulty;
mod io;
mod local;
mod retry;
mod upload;

pub use io::StoreIo;
pub(crate) use local::{delete as delete_files, list as list_files, sweep};
use retry::Retries;
pub(crate) use retry::jitter;
use upload::{MULTIPART_ABOVE, put_multipart, read_chunk, verify};

/// Longest time for which a read is retried. Short, because a caller waits for it.
const READ_BUDGET_MAX: Duration = Duration::from_secs(10);
/// Ranges of one read that are fetched at a time.
const RANGES_AT_A_TIME: usize = 8;

/// The last bytes of a file, checked after its upload.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// How many bytes.
    pub bytes: u64,
    /// CRC32C of these bytes.
    pub crc: u32,
}

/// The object store. Cloning shares it.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    url: String,
    backend: Backend,
    reads: Semaphore,
    writes: Semaphore,
    retries: Retries,
    read_budget: Duration,
    write_budget: Duration,
}

enum Backend {
    Local(PathBuf),
    Remote { store: Arc<dyn ObjectStore>, prefix: StorePath },
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Storage").field(&self.0.url).finish()
    }
}

impl Storage {
    /// Opens the store that the settings name; `default_root` is the local store when they name none.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for URLs of no known form.
    pub fn open(settings: &StoreSettings, default_root: &Path) -> Result<Self> {
        let Some(text) = &settings.store_url else { return Ok(Self::local(default_root, settings)) };
        let invalid = |why: &str| Error::invalid(format!("store URL `{text}`: {why}"));
        let no_url = |e| invalid("is not a URL such as `file:///srv/quiver` or `s3://bucket/prefix`").with_source(e);
        let url = Url::parse(text).map_err(no_url)?;
        if url.query().or(url.fragment()).is_some() || !url.username().is_empty() || url.port().is_some() {
            // Others take region and keys so; dropped here, they would be missed only when the first part is written.
            return Err(invalid("holds more than place and prefix; keys, region and endpoint are variables `AWS_…`"));
        }
        match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| invalid("names no absolute path"))?;
                Ok(Self::local(&path, settings))
            }
            "s3" => {
                let bucket = url.host_str().ok_or_else(|| invalid("names no bucket"))?;
                let store = s3(bucket).map_err(|e| invalid("cannot be opened").with_source(e))?;
                Ok(Self::remote(Arc::new(store), url.path().trim_matches('/'), text, settings))
            }
            scheme => Err(invalid(&format!("`{scheme}` is not supported, only `file` and `s3` are"))),
        }
    }

    /// Takes a directory as the store.
    pub fn local(root: &Path, settings: &StoreSettings) -> Self {
        Self::new(format!("file://{}", root.display()), Backend::Local(root.to_owned()), settings)
    }

    /// Takes any object store, below a prefix. `url` is its name for messages.
    pub fn remote(store: Arc<dyn ObjectStore>, prefix: &str, url: &str, settings: &StoreSettings) -> Self {
        Self::new(url.to_owned(), Backend::Remote { store, prefix: StorePath::from(prefix) }, settings)
    }

    fn new(url: String, backend: Backend, settings: &StoreSettings) -> Self {
        let requests = settings.store_requests_max.max(2);
        Self(Arc::new(Inner {
            url,
            backend,
            reads: Semaphore::new(requests),
            // Uploads have their own share, so that they never make a query wait.
            writes: Semaphore::new(requests.div_ceil(2)),
            retries: Retries::new(settings.timer.clone()),
            read_budget: settings.store_retry_budget.min(READ_BUDGET_MAX),
            write_budget: settings.store_retry_budget,
        }))
    }

    /// Gives the store's URL, for messages.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Gives the directory of a local store; none when it is remote.
    pub fn local_root(&self) -> Option<&Path> {
        match &self.0.backend {
            Backend::Local(root) => Some(root),
            Backend::Remote { .. } => None,
        }
    }

    /// Reads a whole object; none when it is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not answer.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => return blocking(move || local::read(&path)).await,
            Target::Remote(store, path) => (store, path),
        };
        let read = || async {
            let answer = store.get(&path).await?;
            let (expected, bytes) = (answer.meta.size, answer.bytes().await?);
            same_size(&path, expected, bytes.len() as u64)?;
            METRICS.object_read_bytes.add(bytes.len() as u64);
            Ok(bytes)
        };
        found(self.retry(self.reading("read", key, 0), read).await, key)
    }

    /// Gives an object's size; none when it is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not answer.
    pub async fn size(&self, key: &str) -> Result<Option<u64>> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => return blocking(move || local::size(&path)).await,
            Target::Remote(store, path) => (store, path),
        };
        let head = || async { Ok(store.head(&path).await?.size) };
        found(self.retry(self.reading("look up", key, 0), head).await, key)
    }

    /// Reads byte ranges of one object, each exactly as long as asked.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when it is not there, [`ErrorKind::Damaged`] when one in a remote store ends before a range
    /// does, [`ErrorKind::Unavailable`] when the store does not answer.
    pub async fn read_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => {
                let ranges = ranges.to_vec();
                return blocking(move || local::read_ranges(&path, &ranges)).await;
            }
            Target::Remote(store, path) => (store, path),
        };
        let one = |range: Range<u64>| {
            let (store, path) = (&store, &path);
            async move {
                let length = range.end - range.start;
                let failed = AtomicBool::new(false);
                let read = || async {
                    // Stores say in many ways that an object ends too early; repeating that would take the whole budget.
                    if failed.swap(true, Relaxed) && store.head(path).await?.size < range.end {
                        return Ok(None);
                    }
                    let bytes = store.get_range(path, range.clone()).await?;
                    same_size(path, length, bytes.len() as u64)?;
                    METRICS.object_read_bytes.add(length);
                    Ok(Some(bytes))
                };
                let bytes = self.retry(self.reading("read", key, length), read).await;
                bytes.map_err(|e| Failure::into_error(e, key))?.ok_or_else(|| shortened(key))
            }
        };
        let reads: Vec<_> = ranges.iter().map(|r| one(r.clone())).collect();
        futures::stream::iter(reads).buffered(RANGES_AT_A_TIME).try_collect().await
    }

    /// Writes an object of modest size. When this returns it lasts.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not take it.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => return blocking(move || local::put(&path, &body)).await,
            Target::Remote(store, path) => (store, path),
        };
        let length = body.len() as u64;
        let put = || async {
            let answer = store.put(&path, PutPayload::from_bytes(body.clone())).await?;
            verify(&*store, &path, length, answer.e_tag, None).await?;
            METRICS.object_written_bytes.add(length);
            Ok(())
        };
        let done = self.retry(self.writing("write", key, length), put).await;
        done.map_err(|e| Failure::into_error(e, key))
    }

    /// Writes an object that must not be there yet. Gives what is there when it is, unless that is this body: then an
    /// attempt before made it, whose answer was lost.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not take it, [`ErrorKind::Internal`] when it knows no such
    /// condition.
    pub async fn create(&self, key: &str, body: Bytes) -> Result<Option<Bytes>> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => return blocking(move || local::create(&path, &body)).await,
            Target::Remote(store, path) => (store, path),
        };
        let length = body.len() as u64;
        // Once the store has said that this call made it: a body that arrived damaged is ours to replace.
        let ours = AtomicBool::new(false);
        let create = || async {
            let mode = if ours.load(Relaxed) { PutMode::Overwrite } else { PutMode::Create };
            let sent = store.put_opts(&path, PutPayload::from_bytes(body.clone()), mode.into()).await;
            let answer = match sent {
                Err(object_store::Error::AlreadyExists { .. }) => {
                    let found = match store.get(&path).await {
                        Err(object_store::Error::NotFound { .. }) => Err(damaged(&path, "it came and went".into())),
                        found => found,
                    };
                    let found = found?.bytes().await?;
                    return Ok((found != body).then_some(found));
                }
                sent => sent?,
            };
            ours.store(true, Relaxed);
            verify(&*store, &path, length, answer.e_tag, None).await?;
            METRICS.object_written_bytes.add(length);
            Ok(None)
        };
        let done = self.retry(self.writing("create", key, length), create).await;
        done.map_err(|e| Failure::into_error(e, key))
    }

    /// Uploads a file of a part, in parts above 16 MiB, and checks size, entity tag and tail afterwards. (Into a local
    /// store: copies it. The server writes its own parts there in place.)
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not take it, [`ErrorKind::Internal`] when the file cannot be
    /// read or has another size.
    pub async fn put_file(&self, key: &str, file: &Path, length: u64, tail: Tail) -> Result<()> {
        let (store, path) = match self.target(key) {
            Target::Local(path) => {
                let file = file.to_owned();
                return blocking(move || local::copy(&file, &path, length)).await;
            }
            Target::Remote(store, path) => (store, path),
        };
        let found =
            tokio::fs::metadata(file).await.map_err(|e| io_error(format!("cannot read `{}`", file.display()), e))?;
        if found.len() != length {
            let text = format!("`{}` has {} bytes, the catalog says {length}", file.display(), found.len());
            return Err(Error::internal(text));
        }
        let put = || async {
            let e_tag = if length > MULTIPART_ABOVE {
                put_multipart(&*store, &path, file, length).await?
            } else {
                let body = read_chunk(file, 0, length).await?;
                store.put(&path, body.into()).await?.e_tag
            };
            verify(&*store, &path, length, e_tag, Some(tail)).await?;
            METRICS.object_written_bytes.add(length);
            Ok(())
        };
        let done = self.retry(self.writing("upload", key, length), put).await;
        done.map_err(|e| Failure::into_error(e, key))
    }

    /// Deletes objects; those that are not there count as deleted.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not answer; some may be gone then.
    pub async fn delete(&self, keys: &[String]) -> Result<()> {
        if let Backend::Local(root) = &self.0.backend {
            let (root, keys) = (root.clone(), keys.to_vec());
            return blocking(move || local::delete(&root, &keys)).await;
        }
        let one = |key: &String| {
            let (target, key) = (self.target(key), key.clone());
            async move {
                let Target::Remote(store, path) = target else { return Ok(()) };
                let delete = || async { store.delete(&path).await };
                let done = self.retry(self.writing("delete", &key, 0), delete).await;
                found(done, &key).map(|_| ())
            }
        };
        let deletes: Vec<_> = keys.iter().map(one).collect();
        futures::stream::iter(deletes).buffer_unordered(RANGES_AT_A_TIME).try_collect().await
    }

    /// Lists keys and sizes below a prefix (a folder, or the empty text for all).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the store does not answer.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let (store, base) = match &self.0.backend {
            Backend::Local(root) => {
                let (root, prefix) = (root.clone(), prefix.to_owned());
                return blocking(move || local::list(&root, &prefix)).await;
            }
            Backend::Remote { store, prefix } => (Arc::clone(store), prefix.clone()),
        };
        let below = StorePath::from(format!("{base}/{prefix}"));
        let list = || async {
            let objects: Vec<_> = store.list(Some(&below)).try_collect().await?;
            let strip = |p: &StorePath| match base.as_ref() {
                "" => p.to_string(),
                base => p.as_ref().strip_prefix(base).unwrap_or(p.as_ref()).trim_start_matches('/').to_owned(),
            };
            Ok(objects.iter().map(|o| (strip(&o.location), o.size)).collect::<Vec<_>>())
        };
        // No query waits for a list, and one of many objects takes many requests.
        let request = Request { budget: self.0.write_budget, ..self.reading("list", prefix, 0) };
        let listed = self.retry(request, list).await;
        let mut listed = listed.map_err(|e| e.into_error(prefix))?;
        listed.sort();
        Ok(listed)
    }

    fn target(&self, key: &str) -> Target {
        match &self.0.backend {
            Backend::Local(root) => Target::Local(root.join(key)),
            Backend::Remote { store, prefix } => {
                Target::Remote(Arc::clone(store), StorePath::from(format!("{prefix}/{key}")))
            }
        }
    }

    fn reading<'r>(&'r self, what: &'static str, key: &'r str, bytes: u64) -> Request<'r> {
        Request { what, key, bytes, permits: &self.0.reads, budget: self.0.read_budget }
    }

    fn writing<'r>(&'r self, what: &'static str, key: &'r str, bytes: u64) -> Request<'r> {
        Request { what, key, bytes, permits: &self.0.writes, budget: self.0.write_budget }
    }

    /// Attempts a request until it succeeds, fails for good, or its budget is spent.
    async fn retry<T, F, Fut>(&self, request: Request<'_>, attempt: F) -> Result<T, Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        let Request { what, key, bytes, permits, budget } = request;
        // A slow store is not a dead one: a request may take the longer the more it carries (128 KiB/s and up). One that
        // hangs must leave time for another within the budget.
        let limit = budget / 3 * 2 + Duration::from_secs(bytes / (128 * 1024));
        let mut run = self.0.retries.begin(budget);
        loop {
            let permit = permits.acquire().await.map_err(|_| Failure::stopped())?;
            let started = Instant::now();
            let answer = tokio::time::timeout(limit, attempt()).await;
            drop(permit);
            METRICS.object_requests.inc();
            METRICS.object_time.add_time(started.elapsed());
            let error = match answer {
                Ok(Ok(value)) => {
                    self.0.retries.succeeded();
                    return Ok(value);
                }
                Ok(Err(error @ object_store::Error::NotFound { .. })) => return Err(Failure::of(what, error, false)),
                Ok(Err(error)) => error,
                Err(_) => object_store::Error::Generic { store: "store", source: "the request timed out".into() },
            };
            METRICS.object_errors.inc();
            if !worth_repeating(&error) {
                return Err(Failure::of(what, error, false));
            }
            tracing::debug!(key, what, error = %error, "object store request failed");
            if !run.wait().await {
                return Err(Failure::of(what, error, true));
            }
            METRICS.object_retries.inc();
        }
    }
}

enum Target {
    Local(PathBuf),
    Remote(Arc<dyn ObjectStore>, StorePath),
}

/// A request to a remote store, for as many attempts as it takes.
#[derive(Clone, Copy)]
struct Request<'r> {
    /// Verb for messages: what cannot be done to the object.
    what: &'static str,
    key: &'r str,
    /// How many bytes it carries.
    bytes: u64,
    /// The share of concurrent requests that it belongs to.
    permits: &'r Semaphore,
    /// Longest time for all attempts.
    budget: Duration,
}

/// Why an operation was given up.
struct Failure {
    what: &'static str,
    error: object_store::Error,
    later: bool,
}

impl Failure {
    fn of(what: &'static str, error: object_store::Error, later: bool) -> Self {
        Self { what, error, later }
    }

    fn stopped() -> Self {
        let error = object_store::Error::Generic { store: "store", source: "the store was closed".into() };
        Self::of("use", error, true)
    }

    fn into_error(self, key: &str) -> Error {
        if let object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } = &self.error
            && self.what == "create"
        {
            let text = format!(
                "the store cannot create object `{key}` only if it is not there (`If-None-Match: *`); \
                 use a store with conditional writes"
            );
            return Error::invalid(text).with_source(self.error);
        }
        let (kind, why) = match &self.error {
            error if lacks_bucket(error) => (ErrorKind::Unavailable, ": the store knows no such bucket"),
            object_store::Error::NotFound { .. } => (ErrorKind::NotFound, ""),
            // Credentials end and are renewed: like a store that is down, and no fault of what was asked for.
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                (ErrorKind::Unavailable, ": the store refuses the credentials, or they have no right to")
            }
            _ if self.later => (ErrorKind::Unavailable, ""),
            _ => (ErrorKind::Internal, ""),
        };
        let what = match (self.what, key) {
            ("list", "") => "list the objects of the store".to_owned(),
            ("list", folder) => format!("list the objects below `{folder}`"),
            (what, key) => format!("{what} object `{key}`"),
        };
        Error::new(kind, format!("cannot {what}{why}")).with_source(self.error)
    }
}

fn found<T>(answer: Result<T, Failure>, key: &str) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Failure { error: ref error @ object_store::Error::NotFound { .. }, .. }) if !lacks_bucket(error) => {
            Ok(None)
        }
        Err(e) => Err(e.into_error(key)),
    }
}

/// Whether it is the bucket that is not there: then nothing is known of the object. S3 says so in the body alone; the
/// status is the same.
fn lacks_bucket(error: &object_store::Error) -> bool {
    let object_store::Error::NotFound { source, .. } = error else { return false };
    source.to_string().contains("<Code>NoSuchBucket</Code>")
}

fn worth_repeating(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    !matches!(
        error,
        E::NotFound { .. }
            | E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::UnknownConfigurationKey { .. }
    )
}

fn damaged(path: &StorePath, what: String) -> object_store::Error {
    object_store::Error::Generic { store: "store", source: format!("object `{path}`: {what}").into() }
}

fn shortened(key: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("file `{key}` is damaged: it is shorter than it was written"))
}

fn same_size(path: &StorePath, expected: u64, found: u64) -> object_store::Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(damaged(path, format!("expected {expected} bytes, got {found}")))
}

fn s3(bucket: &str) -> object_store::Result<object_store::aws::AmazonS3> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let plain_http = endpoints.iter().filter_map(|name| std::env::var(name).ok()).any(|url| url.starts_with("http://"));
    let mut client =
        ClientOptions::new().with_timeout(Duration::from_mins(2)).with_connect_timeout(Duration::from_secs(5));
    // Who names an endpoint by `http://` has chosen it; `AWS_ALLOW_HTTP` says the same.
    if plain_http || std::env::var("AWS_ALLOW_HTTP").is_ok_and(|v| v.eq_ignore_ascii_case("true") || v == "1") {
        client = client.with_allow_http(true);
    }
    builder = builder.with_client_options(client);
    // Ours repeat whole operations; these help within one, so that a large upload survives one lost part.
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(3), base: 2.0 };
    builder.with_retry(RetryConfig { backoff, max_retries: 4, retry_timeout: Duration::from_secs(30) }).build()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    METRICS.object_requests.inc();
    let done = crate::threads::blocking(work).await.internal("the store's disk thread stopped")?;
    if done.is_err() {
        METRICS.object_errors.inc();
    }
    done
}

#[cfg(test)]
mod tests;
