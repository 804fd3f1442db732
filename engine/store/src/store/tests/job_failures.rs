//! Failures of background work: a damaged part in the spool, a full disk, a flush that fails.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicU64;

use super::super::health::CATALOG_ANSWERS;
use super::*;
use crate::wal::disk::{LocalDisk, WalDisk, WalFile};

/// The machine's disk, of which as much is free as is said.
#[derive(Debug)]
struct Small(AtomicU64);

impl WalDisk for Small {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WalFile>> {
        LocalDisk.create(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        LocalDisk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        LocalDisk.list(dir)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        LocalDisk.read(path)
    }

    fn read_head(&self, path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
        LocalDisk.read_head(path, bytes)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        LocalDisk.truncate(path, bytes)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalDisk.sync(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalDisk.rename(from, to)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.0.load(Relaxed))
    }
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..3000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// Flips a byte in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_in_the_spool_holds_nothing_up() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    let remote = bench.remote.clone().unwrap();
    bench.write(&store, &[START - DAY_MS]).await;
    store.flush_all().await.unwrap();
    remote.faults.down.store(true, Relaxed);
    bench.write(&store, &[START, START + 1]).await;
    store.flush_sealed().await.unwrap();
    let bad = store.visible().parts.iter().find(|p| p.meta.place == Place::Spool).unwrap().meta.clone();
    let file = bench.data().join("parts").join(&bad.file("samples").unwrap().key);
    let open = std::fs::read(&file).unwrap();
    flip(&file);
    bench.write(&store, &[START + 2]).await;
    store.flush_sealed().await.unwrap();
    remote.faults.down.store(false, Relaxed);
    // Later parts are uploaded, and all commit objects are written.
    bench.write(&store, &[START + 3]).await;
    store.flush_all().await.unwrap();
    assert_eq!(store.core.damaged_ids(), HashSet::from([bad.id]));
    let places: Vec<Place> = store.visible().table("metrics").iter().map(|p| p.meta.place).collect();
    assert_eq!(places.iter().filter(|p| **p == Place::Spool).count(), 1, "{places:?}");
    assert_eq!(store.core.catalog.outbox_depth().await.unwrap(), 0);
    assert_eq!(store.core.spool_bytes(), 0, "it does not count against what may wait");
    // Compaction of all else goes on.
    store.compact_all().await.unwrap();
    assert_eq!(levels(&store), [0, 2, 2]);
    end(store).await;
    let report =
        check_with(bench.settings(), Arc::clone(&bench.clock) as Arc<dyn Clock>, bench.storage()).await.unwrap();
    assert!(report.missing.is_empty() && report.damaged.len() == 1, "{report:?}");
    assert!(report.damaged[0].contains(&bad.id.to_string()), "{report:?}");
    // After a restart it is found again; with its file brought back it goes up.
    let store = bench.open().await;
    until("found again", async || !store.core.damaged_ids().is_empty()).await;
    std::fs::write(&file, open).unwrap();
    store.core.spool.damaged.lock().clear();
    store.core.wake.upload.notify_one();
    let up = async || store.visible().parts.iter().all(|p| p.meta.place == Place::Store);
    until("uploaded", up).await;
    bench.verify(&store).await;
    store.compact_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_from_the_spool_holds_nothing_up() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    let remote = bench.remote.clone().unwrap();
    remote.faults.down.store(true, Relaxed);
    bench.write(&store, &[START]).await;
    store.flush_sealed().await.unwrap();
    let bad = store.visible().parts[0].meta.clone();
    std::fs::remove_file(bench.data().join("parts").join(&bad.files[0].key)).unwrap();
    remote.faults.down.store(false, Relaxed);
    bench.write(&store, &[START + 1]).await;
    store.flush_all().await.unwrap();
    assert_eq!(store.core.damaged_ids(), HashSet::from([bad.id]));
    end(store).await;
    // A check tells what is missing, and reads no part that lacks a file.
    let report =
        check_with(bench.settings(), Arc::clone(&bench.clock) as Arc<dyn Clock>, bench.storage()).await.unwrap();
    assert_eq!((report.missing.len(), report.damaged.len()), (1, 0), "{report:?}");
    assert!(report.missing[0].contains(&bad.files[0].key), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn background_work_keeps_the_reserve() {
    let mut bench = Bench::new(false);
    let disk = Arc::new(Small(AtomicU64::new(u64::MAX)));
    let overrides = StoreOverrides { storage: None, wal_disk: Some(Arc::clone(&disk) as Arc<dyn WalDisk>) };
    let settings = bench.settings();
    let (reserve, generation) = (settings.disk_reserve_bytes, settings.generation_bytes());
    let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let store = Store::open_with(settings, clock, overrides).await.unwrap();
    for i in 0..3 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    // Room for writes and flushes, not for a compaction beside them.
    disk.0.store(reserve + generation, Relaxed);
    let (before, began) = (METRICS.compaction_no_room.get(), files_below(&bench.data().join("store")).len());
    let refused = store.compact_all().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("too full for a compaction"), "{refused}");
    assert!(METRICS.compaction_no_room.get() > before);
    assert_eq!(levels(&store), [0, 0, 0]);
    assert!(files_below(&bench.data().join("store")).len() >= began);
    bench.write(&store, &[START + 10]).await;
    store.flush_all().await.unwrap();
    // Not even for a flush: that is told, and over when there is room.
    bench.write(&store, &[START + 11]).await;
    disk.0.store(reserve / 5, Relaxed);
    store.write_path.seal().await.unwrap();
    until("unready", async || !store.ready()).await;
    let trouble = store.trouble().await.unwrap();
    assert!(trouble.contains("the flush has been failing") && trouble.contains("too full for a flush"), "{trouble}");
    bench.verify(&store).await;
    disk.0.store(u64::MAX, Relaxed);
    store.flush_all().await.unwrap();
    assert_eq!(store.trouble().await, None);
    store.compact_all().await.unwrap();
    assert_eq!(levels(&store), [2]);
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_fails_or_does_not_answer_is_told() {
    let bench = Bench::new(false);
    let store = bench.open().await;
    assert_eq!(store.trouble().await, None);
    // Its only connection does not come back, as from a disk that hangs.
    let connections = store.core.catalog.connections();
    let mut held = connections.acquire().await.unwrap();
    let expected = format!("the catalog has not answered for {} s", CATALOG_ANSWERS.as_secs());
    assert_eq!(store.trouble().await, Some(expected));
    sqlx::query("ALTER TABLE \"commit\" RENAME TO away").execute(&mut *held).await.unwrap();
    drop(held);
    let trouble = store.trouble().await.unwrap();
    assert!(trouble.contains("the catalog cannot be read"), "{trouble}");
    sqlx::query("ALTER TABLE away RENAME TO \"commit\"").execute(connections).await.unwrap();
    assert_eq!(store.trouble().await, None);
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_parts_leave_the_caches() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    for i in 0..3 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    let parts: Vec<_> = store.visible().table("metrics").to_vec();
    for part in &parts {
        part.series_page(0, &quiver_types::ReadStats::default()).await.unwrap();
    }
    let entries = |name: &str| store.cache_stats().iter().find(|(n, _)| *n == name).map_or(0, |(_, s)| s.entries);
    assert!(entries("series") >= 3 && entries("footers") >= 3);
    drop(parts);
    store.compact_all().await.unwrap();
    let live: Vec<_> = store.visible().parts.iter().map(|p| p.meta.id).collect();
    assert_eq!(live.len(), 1);
    assert!(entries("series") <= 1 && entries("footers") <= 5, "{:?}", store.cache_stats());
    store.close(CLOSE).await;
}

/// Breaks if one file that cannot be deleted keeps all others, until the disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deleted_keeps_nothing_else() {
    let mut bench = Bench::new(false);
    let store = bench.open().await;
    for i in 0..3 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    // What a job left that died: a folder stands in the place of one of its files.
    let keys = ["a", "b", "c"].map(|name| format!("metrics/1970-01-01/{name}.parquet"));
    let root = bench.data().join("store");
    std::fs::create_dir_all(root.join(&keys[1]).join("full")).unwrap();
    for key in [&keys[0], &keys[2]] {
        std::fs::write(root.join(key), "half").unwrap();
    }
    store.core.catalog.add_pending(Uuid::now_v7(), &keys).await.unwrap();
    let told = store.compact_all().await.unwrap_err();
    assert!(told.to_string().contains("cannot delete") && told.to_string().contains(&keys[1]), "{told}");
    let live: usize = store.visible().parts.iter().map(|p| p.meta.files.len()).sum();
    assert_eq!(files_below(&root.join("metrics")).len(), live, "{:?}", files_below(&root));
    assert_eq!(store.core.catalog.pending_keys().await.unwrap(), [keys[1].clone()]);
    std::fs::remove_dir_all(root.join(&keys[1])).unwrap();
    store.clean().await.unwrap();
    assert!(store.core.catalog.pending_keys().await.unwrap().is_empty());
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}
