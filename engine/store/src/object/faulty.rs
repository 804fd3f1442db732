//! An in-memory object store that tests can stop, slow down, or make return false data.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::layout::CATALOG_PREFIX;

/// The injected faults; shared with the test.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Every request fails.
    pub(crate) down: AtomicBool,
    /// Every request is refused, as with credentials that have ended.
    pub(crate) denied: AtomicBool,
    /// The bucket is gone.
    pub(crate) bucket_gone: AtomicBool,
    /// This many requests fail, then it works again.
    pub(crate) fail_next: AtomicU64,
    /// Every n-th request fails (0: none).
    pub(crate) fail_every: AtomicU64,
    /// This many puts lose the second half of the body but report success.
    pub(crate) cut_next: AtomicU64,
    /// This many puts succeed but their response is lost.
    pub(crate) lose_answers: AtomicU64,
    /// This many requests never get a response.
    pub(crate) hang_next: AtomicU64,
    /// Uploads of parts never get a response.
    pub(crate) hang_parts: AtomicBool,
    /// Number of parts whose upload never got a response.
    pub(crate) hung_parts: AtomicU64,
    /// Number of aborted multipart uploads.
    pub(crate) aborted: AtomicU64,
    /// This many look-ups do not find what is there.
    pub(crate) hide_next: AtomicU64,
    /// Existing objects are replaced, whatever the condition.
    pub(crate) ignores_conditions: AtomicBool,
    /// Reads of files of parts are refused.
    pub(crate) parts_denied: AtomicBool,
    /// Number of requests so far.
    pub(crate) requests: AtomicU64,
    /// Reads of commit objects that run now.
    commit_reads: AtomicU64,
    /// The most reads of commit objects that ran at once.
    pub(crate) commit_reads_max: AtomicU64,
}

/// An object store with injected faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<InMemory>,
    pub(crate) faults: Arc<Faults>,
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

fn take(counter: &AtomicU64) -> bool {
    counter.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
}

fn failure() -> Error {
    Error::Generic { store: "faulty", source: "503 slow down".into() }
}

fn no_bucket() -> Error {
    let source = "404 Not Found: <Error><Code>NoSuchBucket</Code><BucketName>x</BucketName></Error>";
    Error::NotFound { path: "some".into(), source: source.into() }
}

fn refused() -> Error {
    Error::PermissionDenied { path: "some".into(), source: "403 Forbidden".into() }
}

impl FaultyStore {
    async fn answer(&self) -> Result<()> {
        if take(&self.faults.hang_next) {
            std::future::pending::<()>().await;
        }
        self.request()
    }

    /// Lets other reads of commit objects begin before this one ends.
    async fn count_commit_read(&self, location: &Path) {
        if location.as_ref().contains(CATALOG_PREFIX) {
            let running = self.faults.commit_reads.fetch_add(1, Relaxed) + 1;
            self.faults.commit_reads_max.fetch_max(running, Relaxed);
            tokio::task::yield_now().await;
            self.faults.commit_reads.fetch_sub(1, Relaxed);
        }
    }

    fn read_part(&self, location: &Path) -> Result<()> {
        let denied = self.faults.parts_denied.load(Relaxed) && location.as_ref().contains(".parquet");
        if denied { Err(refused()) } else { Ok(()) }
    }

    fn request(&self) -> Result<()> {
        let n = self.faults.requests.fetch_add(1, Relaxed) + 1;
        if self.faults.denied.load(Relaxed) {
            return Err(refused());
        }
        if self.faults.bucket_gone.load(Relaxed) {
            return Err(no_bucket());
        }
        let every = self.faults.fail_every.load(Relaxed);
        let fails =
            self.faults.down.load(Relaxed) || take(&self.faults.fail_next) || (every > 0 && n.is_multiple_of(every));
        if fails { Err(failure()) } else { Ok(()) }
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.answer().await?;
        let ignores = self.faults.ignores_conditions.load(Relaxed);
        let opts = if ignores { PutOptions { mode: PutMode::Overwrite, ..opts } } else { opts };
        if take(&self.faults.cut_next) {
            let body = Bytes::from(payload);
            return self.inner.put_opts(location, body.slice(..body.len() / 2).into(), opts).await;
        }
        let done = self.inner.put_opts(location, payload, opts).await?;
        if take(&self.faults.lose_answers) { Err(failure()) } else { Ok(done) }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.answer().await?;
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(FaultyUpload { upload, faults: Arc::clone(&self.faults) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.answer().await?;
        if options.head && take(&self.faults.hide_next) {
            return Err(Error::NotFound { path: location.to_string(), source: "no such key yet".into() });
        }
        self.read_part(location)?;
        self.count_commit_read(location).await;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.request()?;
        self.read_part(location)?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.request() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.request() {
            Ok(()) => self.inner.list(prefix),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.request()?;
        self.inner.copy_opts(from, to, options).await
    }
}

/// A multipart upload that may hang.
#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    faults: Arc<Faults>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        if self.faults.hang_parts.load(Relaxed) {
            self.faults.hung_parts.fetch_add(1, Relaxed);
            return Box::pin(std::future::pending());
        }
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.faults.aborted.fetch_add(1, Relaxed);
        self.upload.abort().await
    }
}
