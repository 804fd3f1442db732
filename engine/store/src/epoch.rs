//! Which process is the store's master: each start takes the next epoch, an object `_epoch/<n>.json` that can be
//! created only once. Whoever finds an epoch above its own has lost the store to a later process, and writes no more.
//!
//! Two servers come to one store by a cloned data directory, a restored database, or two first starts at once. Of those
//! that start together one gets the number, the others end; one that runs already ends when it looks the next time,
//! which it does before each commit, each commit object and each deletion.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quiver_types::Millis;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::{Context, Error, ErrorKind, Result, chain};
use crate::failpoint;
use crate::layout::{EPOCH_PREFIX, EpochObject, STORE_FORMAT, epoch_key, parse_epoch_key};
use crate::metrics::METRICS;
use crate::object::{Storage, sweep};

/// Epochs before ours that stay, for people who look who was there.
const KEPT: u64 = 16;

/// Takes the next epoch.
///
/// # Errors
/// [`ErrorKind::Conflict`] when another process takes it at the same moment, [`ErrorKind::Invalid`] when the store
/// cannot create objects only once, [`ErrorKind::Unavailable`] when it does not answer.
pub(crate) async fn take(storage: &Storage, installation: Uuid, now: Millis) -> Result<u64> {
    let epoch = newest(storage).await?.unwrap_or(0) + 1;
    failpoint::hit("open.before-epoch");
    let object = EpochObject { format: STORE_FORMAT, installation, epoch, process: Uuid::now_v7(), started_ms: now };
    let (key, body) = (epoch_key(epoch), Bytes::from(object.to_json()));
    if let Some(other) = storage.create(&key, body.clone()).await? {
        return Err(taken(storage, &other, epoch));
    }
    failpoint::hit("open.after-epoch");
    // A store that takes no notice of the condition would let two servers in: it must refuse the same key now.
    let again = EpochObject { process: Uuid::now_v7(), ..object };
    match storage.create(&key, Bytes::from(again.to_json())).await? {
        Some(found) if found == body => {}
        Some(other) => return Err(taken(storage, &other, epoch)),
        None => {
            let text = format!(
                "the store `{}` replaces objects that should be created only once (it ignores `If-None-Match: *`), so two \
                 servers could write to it; use a store with conditional writes",
                storage.url()
            );
            return Err(Error::invalid(text));
        }
    }
    if let Some(root) = storage.local_root().map(Path::to_owned) {
        tokio::task::spawn_blocking(move || sweep(&root)).await.internal("the store's disk thread stopped")??;
    }
    if epoch > KEPT {
        let old = storage.list(EPOCH_PREFIX).await?.into_iter().map(|(key, _)| key);
        let old: Vec<_> = old.filter(|key| parse_epoch_key(key).is_some_and(|n| n < epoch - KEPT)).collect();
        storage.delete(&old).await?;
    }
    Ok(epoch)
}

/// Gives the newest epoch; none of a store that only builds before epochs wrote to.
pub(crate) async fn newest(storage: &Storage) -> Result<Option<u64>> {
    Ok(storage.list(EPOCH_PREFIX).await?.iter().filter_map(|(key, _)| parse_epoch_key(key)).max())
}

/// Checks that no later process has taken the store.
///
/// # Errors
/// [`ErrorKind::Conflict`] when one has, [`ErrorKind::Unavailable`] when the store does not answer.
pub(crate) async fn check(storage: &Storage, ours: u64) -> Result<()> {
    match newest(storage).await? {
        Some(newest) if newest > ours => {
            let text = format!(
                "another server took the store `{}` (epoch {newest}, ours is {ours}): it runs with a copy of this data \
                 directory; this one writes no more",
                storage.url()
            );
            Err(Error::new(ErrorKind::Conflict, text))
        }
        _ => Ok(()),
    }
}

/// What a process knows of its own mastership.
#[derive(Debug)]
pub(crate) struct Mastership {
    /// 0: the store did not answer yet.
    epoch: AtomicU64,
    /// One asks at a time.
    pub(crate) taking: tokio::sync::Mutex<()>,
    lost: OnceLock<String>,
    over: CancellationToken,
}

impl Mastership {
    /// Begins with an epoch; none: the store did not answer.
    pub(crate) fn new(epoch: Option<u64>) -> Self {
        let epoch = AtomicU64::new(epoch.unwrap_or(0));
        Self { epoch, taking: tokio::sync::Mutex::default(), lost: OnceLock::new(), over: CancellationToken::new() }
    }

    /// Gives the epoch, when there is one.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Relaxed)).filter(|&n| n > 0)
    }

    /// Notes the epoch that was taken.
    pub(crate) fn took(&self, epoch: u64) {
        self.epoch.store(epoch, Relaxed);
    }

    /// Notes that the store is another's, for the reason that the error says.
    pub(crate) fn lose(&self, error: &Error) {
        if self.lost.set(error.to_string()).is_ok() {
            METRICS.store_lost.set(1);
            tracing::error!(error = %chain(error), "the store is another server's now, stopping");
            self.over.cancel();
        }
    }

    /// Gives why the store was lost.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Waits until the store is lost.
    pub(crate) async fn wait(&self) {
        self.over.cancelled().await;
    }
}

fn taken(storage: &Storage, other: &[u8], epoch: u64) -> Error {
    let by = serde_json::from_slice::<EpochObject>(other);
    let by = by.map_or_else(|_| "another process".to_owned(), |o| format!("process `{}`", o.process));
    let text = format!(
        "epoch {epoch} of the store `{}` was taken by {by}, which starts at the same moment; one store belongs to one server",
        storage.url()
    );
    Error::new(ErrorKind::Conflict, text)
}
