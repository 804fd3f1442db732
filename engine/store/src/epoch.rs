//! Elects the master of the store: each start takes the next epoch by creating an object `_epoch/<n>.json`, which can
//! be created only once. A process that finds an epoch above its own has lost the store to a later process and stops
//! writing.
//!
//! Two servers may end up on one store by a cloned data directory, a restored database, or two first starts at once. Of
//! those that start together, one gets the number and the others exit. A running one exits at its next check, which it
//! makes before each commit, commit object and deletion.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
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

/// What a look at the store shows.
enum Sight {
    Ours,
    /// Another process has taken it.
    Taken(Error),
    /// It is another one now: a disk is not mounted any more, or a bucket was emptied.
    Gone(Error),
}

async fn look(storage: &Storage, ours: u64) -> Result<Sight> {
    Ok(match newest(storage).await? {
        Some(newest) if newest == ours => Sight::Ours,
        Some(newest) if newest > ours => {
            let text = format!(
                "another server took the store `{}` (epoch {newest}, ours is {ours}): it runs with a copy of this data \
                 directory; this one writes no more",
                storage.url()
            );
            Sight::Taken(Error::new(ErrorKind::Conflict, text))
        }
        _ => {
            let text = format!(
                "the store `{}` does not hold epoch {ours} any more, with which this server began: its disk is not mounted, \
                 or it was emptied; nothing is written to it until it is back",
                storage.url()
            );
            Sight::Gone(Error::new(ErrorKind::Unavailable, text))
        }
    })
}

/// What a process knows of its own mastership.
#[derive(Debug)]
pub(crate) struct Mastership {
    /// 0: the store did not answer yet.
    epoch: AtomicU64,
    /// Held by the caller that takes an epoch, so that only one does so at a time.
    pub(crate) taking: tokio::sync::Mutex<()>,
    lost: OnceLock<String>,
    /// Why nothing is written to the store, if it was another one at the last look.
    gone: Mutex<Option<String>>,
    over: CancellationToken,
}

impl Mastership {
    /// Begins with an epoch; none: the store did not answer.
    pub(crate) fn new(epoch: Option<u64>) -> Self {
        Self {
            epoch: AtomicU64::new(epoch.unwrap_or(0)),
            taking: tokio::sync::Mutex::default(),
            lost: OnceLock::new(),
            gone: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// Gives the epoch, when there is one.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Relaxed)).filter(|&n| n > 0)
    }

    /// Notes the epoch that was taken.
    pub(crate) fn took(&self, epoch: u64) {
        self.epoch.store(epoch, Relaxed);
    }

    /// Checks that no later process has taken the store, and that it still is the store that our epoch was taken of.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another has taken it, [`ErrorKind::Unavailable`] when the store does not answer, or is
    /// another one now, which [`Self::gone`] tells from then on.
    pub(crate) async fn check(&self, storage: &Storage, ours: u64) -> Result<()> {
        let sight = look(storage, ours).await?;
        *self.gone.lock() = match &sight {
            Sight::Gone(error) => Some(error.message.clone()),
            Sight::Ours | Sight::Taken(_) => None,
        };
        match sight {
            Sight::Ours => Ok(()),
            Sight::Taken(error) | Sight::Gone(error) => Err(error),
        }
    }

    /// Gives why nothing is written to the store, if it was another one at the last look.
    pub(crate) fn gone(&self) -> Option<String> {
        self.gone.lock().clone()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::object::faulty::FaultyStore;
    use crate::settings::StoreSettings;

    const INSTALLATION: Uuid = Uuid::from_u128(7);

    fn settings() -> StoreSettings {
        // No time for repeats: what fails, fails at once.
        StoreSettings { store_retry_budget: Duration::from_millis(4), ..StoreSettings::default() }
    }

    fn remote() -> (FaultyStore, Storage) {
        let store = FaultyStore::default();
        let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
        (store, storage)
    }

    async fn check(storage: &Storage, ours: u64) -> Result<()> {
        Mastership::new(Some(ours)).check(storage, ours).await
    }

    async fn epochs(storage: &Storage) -> Vec<u64> {
        storage.list(EPOCH_PREFIX).await.unwrap().iter().filter_map(|(key, _)| parse_epoch_key(key)).collect()
    }

    #[tokio::test]
    async fn each_start_takes_the_next_epoch() {
        let (_, storage) = remote();
        assert_eq!(newest(&storage).await.unwrap(), None);
        assert_eq!(check(&storage, 1).await.unwrap_err().kind(), ErrorKind::Unavailable, "nobody was there");
        for expected in 1..=3 {
            assert_eq!(take(&storage, INSTALLATION, 1_700_000_000_123).await.unwrap(), expected);
        }
        let body = storage.get(&epoch_key(2)).await.unwrap().unwrap();
        let object: EpochObject = serde_json::from_slice(&body).unwrap();
        assert_eq!((object.format, object.installation, object.epoch), (STORE_FORMAT, INSTALLATION, 2));
        assert_eq!(object.started_ms, 1_700_000_000_123);
        assert!(check(&storage, 3).await.is_ok());
        let error = check(&storage, 2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message.contains("`s3://x/p` (epoch 3, ours is 2)"), "{error}");
    }

    #[tokio::test]
    async fn the_last_epochs_stay_and_nothing_else_is_touched() {
        let (_, storage) = remote();
        let note = format!("{EPOCH_PREFIX}/readme.json");
        storage.put(&note, Bytes::from_static(b"of a person")).await.unwrap();
        for _ in 0..KEPT + 4 {
            take(&storage, INSTALLATION, 0).await.unwrap();
        }
        assert_eq!(epochs(&storage).await, (4..=KEPT + 4).collect::<Vec<_>>());
        assert!(storage.get(&note).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn numbers_go_on_behind_a_gap() {
        let (_, storage) = remote();
        storage.put(&epoch_key(41), Bytes::from_static(b"no JSON, but a name that counts")).await.unwrap();
        assert_eq!(take(&storage, INSTALLATION, 0).await.unwrap(), 42);
        assert_eq!(epochs(&storage).await, [41, 42]);
    }

    #[tokio::test]
    async fn a_store_that_replaces_objects_is_refused() {
        let (store, storage) = remote();
        store.faults.ignores_conditions.store(true, Relaxed);
        let error = take(&storage, INSTALLATION, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message.contains("it ignores `If-None-Match: *`"), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_is_down_says_nothing_about_its_master() {
        let (store, storage) = remote();
        assert_eq!(take(&storage, INSTALLATION, 0).await.unwrap(), 1);
        store.faults.down.store(true, Relaxed);
        assert_eq!(check(&storage, 1).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(take(&storage, INSTALLATION, 0).await.unwrap_err().kind(), ErrorKind::Unavailable);
        store.faults.down.store(false, Relaxed);
        assert!(check(&storage, 1).await.is_ok());
    }

    #[tokio::test]
    async fn a_store_that_was_emptied_is_told_until_it_is_back() {
        let (store, storage) = remote();
        let mastership = Mastership::new(Some(take(&storage, INSTALLATION, 0).await.unwrap()));
        assert!(mastership.check(&storage, 1).await.is_ok() && mastership.gone().is_none());
        let body = storage.get(&epoch_key(1)).await.unwrap().unwrap();
        storage.delete(&[epoch_key(1)]).await.unwrap();
        let error = mastership.check(&storage, 1).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.message.contains("it was emptied"), "{error}");
        assert_eq!(mastership.gone().as_deref(), Some(&*error.message));
        // One that does not answer may be either.
        store.faults.down.store(true, Relaxed);
        assert_eq!(mastership.check(&storage, 1).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(mastership.gone().is_some());
        store.faults.down.store(false, Relaxed);
        storage.put(&epoch_key(1), body).await.unwrap();
        assert!(mastership.check(&storage, 1).await.is_ok() && mastership.gone().is_none());
    }

    #[tokio::test]
    async fn what_a_crash_left_is_swept_by_the_next_master() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::local(dir.path(), &settings());
        let folder = dir.path().join(EPOCH_PREFIX);
        std::fs::create_dir_all(&folder).unwrap();
        let left = folder.join("000000000001.json.0190.tmp");
        std::fs::write(&left, "half").unwrap();
        assert_eq!(take(&storage, INSTALLATION, 0).await.unwrap(), 1);
        assert!(!left.exists());
        assert_eq!(epochs(&storage).await, [1]);
    }

    #[test]
    fn who_took_it_is_told_where_it_is_known() {
        let (_, storage) = remote();
        let object = EpochObject {
            format: STORE_FORMAT,
            installation: INSTALLATION,
            epoch: 9,
            process: Uuid::from_u128(1),
            started_ms: 0,
        };
        let known = taken(&storage, object.to_json().as_bytes(), 9);
        let process = "process `00000000-0000-0000-0000-000000000001`";
        assert!(known.message.contains(&format!("epoch 9 of the store `s3://x/p` was taken by {process}")), "{known}");
        let unknown = taken(&storage, b"{", 9);
        assert!(unknown.message.contains("was taken by another process, which"), "{unknown}");
        assert_eq!((known.kind(), unknown.kind()), (ErrorKind::Conflict, ErrorKind::Conflict));
    }

    #[tokio::test]
    async fn a_store_is_lost_once_and_for_one_reason() {
        let mastership = Mastership::new(None);
        assert_eq!((mastership.epoch(), mastership.lost()), (None, None));
        mastership.took(5);
        assert_eq!((mastership.epoch(), Mastership::new(Some(3)).epoch()), (Some(5), Some(3)));
        let waits = tokio::time::timeout(Duration::ZERO, mastership.wait()).await;
        assert!(waits.is_err(), "it is still ours");
        mastership.lose(&Error::new(ErrorKind::Conflict, "the first reason"));
        mastership.lose(&Error::new(ErrorKind::Conflict, "another"));
        mastership.wait().await;
        assert_eq!(mastership.lost(), Some("the first reason"));
    }
}
