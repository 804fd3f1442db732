//! One store, one server: of two servers that start on a store, one stops and nothing is lost.

use bytes::Bytes;

use super::*;
use crate::layout::{CATALOG_PREFIX, EPOCH_PREFIX, commit_key, epoch_key, parse_commit_key};

/// Another machine at the same store.
fn beside(bench: &Bench) -> Bench {
    Bench { remote: bench.remote.clone(), ..Bench::new(false) }
}

/// Copies a data directory as it lies there; its server may take files away meanwhile.
pub(super) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_dir(&path, &to);
        } else {
            match std::fs::copy(&path, &to) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                copied => {
                    copied.unwrap();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_first_starts_at_once() {
    for _ in 0..20 {
        let mut first = Bench::new(true);
        let mut second = beside(&first);
        let (a, b) = tokio::join!(first.try_open(), second.try_open());
        let (error, store, bench) = match (a, b) {
            (Ok(store), Err(e)) => (e, store, &mut first),
            (Err(e), Ok(store)) => (e, store, &mut second),
            other => panic!("{other:?}"),
        };
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        bench.write(&store, &[START]).await;
        store.flush_all().await.unwrap();
        bench.verify(&store).await;
        store.close(CLOSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_database_is_refused() {
    for remote in [false, true] {
        let (mut bench, store) = Bench::flushed(remote).await;
        end(store).await;
        let database = bench.data().join("quiver.db");
        let old = std::fs::read(&database).unwrap();
        let store = bench.open().await;
        bench.write(&store, &[START + 1]).await;
        store.compact_all().await.unwrap();
        end(store).await;
        std::fs::write(&database, &old).unwrap();
        let error = bench.try_open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("quiver catalog rebuild"), "{error}");
        bench.rebuild().await;
        let store = bench.open().await;
        bench.verify(&store).await;
        end(store).await;
        bench.sound().await;
    }
}

/// Breaks if a table that was moved to another disk counts as missing, and is lost with the catalog.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_behind_a_link_is_found() {
    let (mut bench, store) = Bench::flushed(false).await;
    end(store).await;
    let (table, disk) = (bench.data().join("store/metrics"), bench.dir.path().join("disk"));
    std::fs::rename(&table, &disk).unwrap();
    std::os::unix::fs::symlink(&disk, &table).unwrap();
    bench.sound().await;
    std::fs::remove_file(bench.data().join("quiver.db")).unwrap();
    bench.rebuild().await;
    let store = bench.open().await;
    bench.verify(&store).await;
    bench.write(&store, &[START + 1]).await;
    store.compact_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_store_is_refused() {
    let (mut bench, store) = Bench::flushed(false).await;
    let (now, old) = (bench.data().join("store"), bench.dir.path().join("old"));
    copy_dir(&now, &old);
    bench.write(&store, &[START + 1]).await;
    store.flush_all().await.unwrap();
    end(store).await;
    std::fs::remove_dir_all(&now).unwrap();
    copy_dir(&old, &now);
    let error = bench.try_open().await.unwrap_err();
    assert!(error.to_string().contains("the store is an older copy"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_fences_the_first() {
    let (mut bench, store) = Bench::flushed(true).await;
    bench.write(&store, &[START + 1]).await;
    store.flush_all().await.unwrap();
    let mut clone = beside(&bench);
    clone.written = bench.written.clone();
    clone.next = 1000;
    copy_dir(&bench.data(), &clone.data());
    let later = clone.open().await;
    // The first merges parts that the clone reads, and would delete them.
    let error = store.compact_all().await.unwrap_err();
    assert!(error.to_string().contains("writes no more"), "{error}");
    let lost = store.lost().await;
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    assert!(lost.to_string().contains("another server took the store"), "{lost}");
    assert!(!store.ready());
    let refused = bench.try_write(&store, &[START + 2]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("another server took the store"), "{refused}");
    assert!(store.clean().await.is_err() || store.clean().await.unwrap() == 0);
    end(store).await;
    clone.verify(&later).await;
    clone.write(&later, &[START + 3]).await;
    later.compact_all().await.unwrap();
    clone.verify(&later).await;
    // The first comes back: its catalog and the store have parted.
    let error = bench.try_open().await.unwrap_err();
    assert!(error.to_string().contains("quiver catalog rebuild"), "{error}");
    clone.write(&later, &[START + 4]).await;
    later.flush_all().await.unwrap();
    end(later).await;
    clone.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_on_a_local_store_fences_the_first_before_its_commit() {
    fn shared(settings: &mut StoreSettings) {
        let root = settings.data_dir.ancestors().nth(2).unwrap().join("shared-store");
        settings.store_url = Some(format!("file://{}", root.display()));
    }
    let root = tempfile::tempdir().unwrap();
    let bench = |name: &str| {
        let dir = tempfile::Builder::new().prefix(name).tempdir_in(root.path()).unwrap();
        Bench { dir, tune: shared, ..Bench::new(false) }
    };
    let mut first = bench("first");
    let store = first.open().await;
    first.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    let mut clone = bench("clone");
    (clone.written, clone.next) = (first.written.clone(), 1000);
    copy_dir(&first.data(), &clone.data());
    let later = clone.open().await;
    first.write(&store, &[START + 1]).await;
    assert!(store.flush_all().await.unwrap_err().to_string().contains("writes no more"));
    // Nothing acknowledged is lost: it stands in the first one's WAL.
    end(store).await;
    clone.verify(&later).await;
    end(later).await;
    let store = first.open().await;
    first.verify(&store).await;
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_of_builds_before_epochs_start() {
    let (bench, store) = Bench::flushed(false).await;
    end(store).await;
    let root = bench.data().join("store");
    std::fs::remove_dir_all(root.join(EPOCH_PREFIX)).unwrap();
    for file in files_below(&root.join("_catalog")) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("\"epoch\":1,"), "{text}");
        std::fs::write(&file, text.replace("\"epoch\":1,", "")).unwrap();
    }
    for epoch in 1..40 {
        let store = bench.open().await;
        assert!(root.join(epoch_key(epoch)).is_file());
        store.close(Duration::ZERO).await;
    }
    assert!(files_below(&root.join(EPOCH_PREFIX)).len() < 20, "old ones go");
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_conditional_writes_is_refused() {
    let bench = Bench::new(true);
    let faults = &bench.remote.as_ref().unwrap().faults;
    faults.ignores_conditions.store(true, Relaxed);
    let error = bench.try_open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("If-None-Match"), "{error}");
}

/// Breaks if nobody says how to go on from an identity that cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_identity_is_made_anew() {
    let (bench, store) = Bench::flushed(false).await;
    end(store).await;
    let identity = bench.data().join("store/_quiver.json");
    let whole = std::fs::read(&identity).unwrap();
    for body in ["", "{", "\0\0\0\0"] {
        std::fs::write(&identity, body).unwrap();
        let told = bench.try_open().await.unwrap_err().to_string();
        assert!(told.contains("`_quiver.json` is damaged; move it out") && told.contains("rebuild"), "{told}");
    }
    std::fs::remove_file(&identity).unwrap();
    bench.rebuild().await;
    assert_eq!(std::fs::read(&identity).unwrap(), whole);
    let store = bench.open().await;
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

/// Breaks if a rebuild is the first to learn that it cannot be done.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_reads_the_commit_objects() {
    let (bench, store) = Bench::flushed(false).await;
    end(store).await;
    let key = commit_key(1);
    let file = bench.data().join("store").join(&key);
    let whole = std::fs::read(&file).unwrap();
    for body in ["", "{\"format\":1}"] {
        std::fs::write(&file, body).unwrap();
        let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
        let report = check_with(bench.settings(), clock, None).await.unwrap();
        assert!(!report.sound() && report.damaged.len() == 1, "{report:?}");
        assert!(report.damaged[0].starts_with(&format!("commit object `{key}` is damaged")), "{report:?}");
    }
    std::fs::write(&file, whole).unwrap();
    bench.sound().await;
}

/// Breaks if a check or a rebuild over a store far away waits for one object after the other.
#[tokio::test(flavor = "multi_thread")]
async fn commit_objects_are_read_several_at_a_time() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    for i in 0..6 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    store.close(CLOSE).await;
    drop(store);
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    let most = || faults.commit_reads_max.swap(0, Relaxed);
    most();
    bench.sound().await;
    let of_check = most();
    let clock = || Arc::clone(&bench.clock) as Arc<dyn Clock>;
    unlocked(|| rebuild_with(bench.settings(), clock(), bench.storage())).await.unwrap();
    let of_rebuild = most();
    assert!((2..=16).contains(&of_check) && (2..=16).contains(&of_rebuild), "{of_check}, {of_rebuild}");
}

/// Breaks if a store that does not answer makes all parts damaged ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_damage_from_a_store_that_refuses() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    store.close(CLOSE).await;
    drop(store);
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.parts_denied.store(true, Relaxed);
    let clock = || Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let error = unlocked(|| check_with(bench.settings(), clock(), bench.storage())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    faults.parts_denied.store(false, Relaxed);
    bench.sound().await;
}

/// Breaks if a server goes on in the folder under a disk that was mounted there: its log goes, and what it wrote is
/// not to be seen once the disk is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_away_gets_nothing() {
    let (mut bench, store) = Bench::flushed(false).await;
    bench.verify(&store).await;
    let (root, away) = (bench.data().join("store"), bench.dir.path().join("away"));
    std::fs::rename(&root, &away).unwrap();
    let commit = store.visible().commit;
    bench.write(&store, &[START + 1]).await;
    store.write_path.seal().await.unwrap();
    for _ in 0..3000 {
        if !store.ready() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let trouble = store.trouble().await.unwrap_or_default();
    assert!(trouble.contains("does not hold epoch 1 any more"), "{trouble}");
    // Open files can be read still.
    let told = store.compactor.request(crate::compact::Extent::All).await.unwrap_err();
    assert!(told.to_string().contains("does not hold epoch 1 any more"), "{told}");
    assert_eq!((store.visible().commit, files_below(&root).len()), (commit, 0));
    // The disk is back.
    let _ = std::fs::remove_dir_all(&root);
    std::fs::rename(&away, &root).unwrap();
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

/// Breaks if a commit object that arrived cut short counts as another server's: this one ends, and none starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_object_that_was_cut_short_is_written_again() {
    let (mut bench, store) = Bench::flushed(true).await;
    let storage = bench.storage().unwrap();
    let cut_next = async || {
        let keys = storage.list(CATALOG_PREFIX).await.unwrap();
        let newest = keys.iter().filter_map(|(key, _)| parse_commit_key(key)).max().unwrap();
        let half = Bytes::from_static(b"{\"format\":1,\"installation\":\"0");
        storage.put(&commit_key(newest + 1), half).await.unwrap();
    };
    cut_next().await;
    bench.write(&store, &[START + 1]).await;
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    // A start copes with such a commit object, too.
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.down.store(true, Relaxed);
    bench.write(&store, &[START + 2]).await;
    end(store).await;
    faults.down.store(false, Relaxed);
    cut_next().await;
    let store = bench.open().await;
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
    bench.rebuild().await;
    let store = bench.open().await;
    bench.verify(&store).await;
    end(store).await;
}
