//! Backups and restores, with every combination of local and remote stores.

use super::masters::copy_dir;
use super::*;
use crate::backup::{Attach, BackupRequest, list, restore};

fn request(to: &Path, keep: Option<usize>) -> BackupRequest {
    BackupRequest { to: to.display().to_string(), keep }
}

/// Restores into a new bench.
async fn restored(bench: &Bench, from: &Path, at: Option<&str>) -> Bench {
    let copy = Bench { written: bench.written.clone(), next: bench.next, ..Bench::new(false) };
    let clock = Arc::clone(&copy.clock) as Arc<dyn Clock>;
    restore(copy.settings(), clock, &from.display().to_string(), at).await.unwrap();
    copy
}

async fn same(copy: &mut Bench) {
    copy.sound().await;
    let store = copy.open().await;
    copy.verify(&store).await;
    copy.write(&store, &[START + 77_777]).await;
    store.compact_all().await.unwrap();
    copy.verify(&store).await;
    end(store).await;
    copy.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_backup_holds_its_moment_and_copies_what_is_new() {
    for remote in [false, true] {
        let mut bench = Bench::new(remote);
        let place = bench.dir.path().join("backups");
        let store = bench.open().await;
        bench.write(&store, &[START, START - DAY_MS]).await;
        let first = store.backup(&request(&place, None)).await.unwrap();
        assert!(first.parts >= 2 && first.copied_files > 0 && first.damaged.is_empty(), "{first}");
        let mut then = restored(&bench, &place, None).await;
        // Its store names its parts before a server ran over it.
        then.rebuild().await;
        bench.clock.pass(60_000);
        bench.write(&store, &[START + 1]).await;
        let second = store.backup(&request(&place, None)).await.unwrap();
        assert!(second.copied_bytes < second.bytes, "{second}");
        let again = store.backup(&request(&place, None)).await.unwrap();
        assert_eq!(again.copied_files, 0);
        // What is compacted since is in none of them.
        bench.clock.pass(60_000);
        let mut now = restored(&bench, &place, None).await;
        same(&mut now).await;
        same(&mut then).await;
        let mut old = restored(&then, &place, Some(&first.name)).await;
        old.written.retain(|(_, ts), _| *ts != START + 77_777);
        same(&mut old).await;
        store.compact_all().await.unwrap();
        let third = store.backup(&request(&place, Some(1))).await.unwrap();
        assert!(third.deleted_files > 0, "{third}");
        let names = list(&bench.settings(), &place.display().to_string()).await.unwrap();
        assert_eq!(names, [third.name]);
        let mut last = restored(&bench, &place, None).await;
        same(&mut last).await;
        store.close(CLOSE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_by_name() {
    let mut bench = Bench::new(false);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    let refused = async |to: &Path, part: &str| {
        let error = store.backup(&request(to, None)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&bench.data().join("store"), "lie in one another").await;
    refused(&bench.data().join("store/backups"), "lie in one another").await;
    refused(&bench.data(), "lie in one another").await;
    refused(&bench.data().join("parts"), "a folder of the server").await;
    refused(&bench.data().join("wal/backups"), "a folder of the server").await;
    refused(&bench.data().join(".backup-stage"), "a folder of the server").await;
    std::os::unix::fs::symlink(bench.data().join("store"), bench.dir.path().join("link")).unwrap();
    refused(&bench.dir.path().join("link/backups"), "a folder of the server").await;
    refused(&bench.dir.path().join("link/../parts"), "a folder of the server").await;
    refused(Path::new(""), "name a folder or URL").await;
    let unusable = bench.dir.path().join("x".repeat(300));
    refused(&unusable, &format!("`file://{}`: cannot list", unusable.display())).await;
    store.backup(&request(&place, None)).await.unwrap();
    let mut other = Bench::new(false);
    let others = other.open().await;
    other.write(&others, &[START]).await;
    let error = others.backup(&request(&place, None)).await.unwrap_err();
    assert!(error.to_string().contains("backups of another installation"), "{error}");
    end(others).await;
    let from = place.display().to_string();
    let clock = Arc::clone(&other.clock) as Arc<dyn Clock>;
    let error = loop {
        let error = restore(other.settings(), Arc::clone(&clock), &from, None).await.unwrap_err().to_string();
        // See `unlocked`.
        if !error.contains("in use") {
            break error;
        }
    };
    assert!(error.contains("restore into an empty one"), "{error}");
    let empty = Bench::new(false);
    let error = restore(empty.settings(), Arc::clone(&clock), &from, Some("nope")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // A flipped bit in the backup: named, and nothing is served of it.
    let part = files_below(&place.join("metrics")).into_iter().find(|f| f.contains("samples")).unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    let error = restore(empty.settings(), Arc::clone(&clock), &from, None).await.unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    let error = unlocked(|| empty.try_open()).await.unwrap_err().to_string();
    assert!(error.contains("did not finish") && error.contains("RESTORING"), "{error}");
    // And so is a file that is not there.
    std::fs::remove_file(&part).unwrap();
    let error = restore(empty.settings(), Arc::clone(&clock), &from, None).await.unwrap_err().to_string();
    let key = part.strip_prefix(place.to_str().unwrap()).unwrap().trim_start_matches('/');
    assert!(error.contains(&format!("file `{key}` of backup")) && error.contains("is missing"), "{error}");
    bytes[40] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    // Called again, it goes on.
    restore(empty.settings(), clock, &from, None).await.unwrap();
    assert!(!empty.data().join("RESTORING").exists());
    let copy = Bench { written: bench.written.clone(), ..empty };
    copy.sound().await;
    store.close(CLOSE).await;
}

/// Breaks if a backup, or what it is restored from, goes with the files that were on their way.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_the_data_directory_stays() {
    for name in ["backup", "backups"] {
        let mut bench = Bench::new(false);
        let place = bench.data().join(name);
        let store = bench.open().await;
        bench.write(&store, &[START]).await;
        store.backup(&request(&place, Some(1))).await.unwrap();
        end(store).await;
        let files = files_below(&place);
        assert!(files.iter().any(|file| Path::new(file).extension().is_some_and(|kind| kind == "json")), "{files:?}");
        let mut copy = Bench { written: bench.written.clone(), next: bench.next, ..Bench::new(false) };
        let beside = copy.data().join(name);
        std::fs::create_dir_all(beside.parent().unwrap()).unwrap();
        std::fs::rename(&place, &beside).unwrap();
        let clock = Arc::clone(&copy.clock) as Arc<dyn Clock>;
        restore(copy.settings(), clock, &beside.display().to_string(), None).await.unwrap();
        assert_eq!(files_below(&beside).len(), files.len());
        same(&mut copy).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_part_is_named_and_left_out() {
    let mut bench = Bench::new(false);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START, START - DAY_MS]).await;
    store.flush_all().await.unwrap();
    let data = bench.data().join("store/metrics");
    let part = files_below(&data).into_iter().find(|f| f.contains("samples")).unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    let report = store.backup(&request(&place, None)).await.unwrap();
    assert_eq!((report.damaged.len(), report.parts), (1, 1), "{report}");
    assert!(report.to_string().contains("NOT in the backup"), "{report}");
    store.close(CLOSE).await;
}

/// Breaks if a truncated object is taken for a store that does not answer, which would end every backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_was_cut_short_in_the_store_is_left_out() {
    let mut bench = Bench::new(true);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START, START - DAY_MS]).await;
    store.flush_all().await.unwrap();
    let storage = bench.storage().unwrap();
    let (key, bytes) = storage.list("metrics").await.unwrap().into_iter().find(|(k, _)| k.contains("samples")).unwrap();
    let whole = storage.get(&key).await.unwrap().unwrap();
    storage.put(&key, whole.slice(..bytes as usize / 2)).await.unwrap();
    let report = store.backup(&request(&place, None)).await.unwrap();
    assert_eq!((report.damaged.len(), report.parts), (1, 1), "{report}");
    assert!(report.damaged[0].contains(&format!("`{key}` is damaged: it is shorter")), "{report}");
    store.close(CLOSE).await;
}

/// Writes its file, and never ends.
struct Endless;

#[async_trait::async_trait]
impl Attach for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    async fn write(&self, to: &Path) -> Result<()> {
        std::fs::write(to, "secret").unwrap();
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_nobody_waits_for_leaves_no_files() {
    let bench = Bench::new(false);
    let store = bench.open().await;
    let request = request(&bench.dir.path().join("backups"), None);
    let task = tokio::spawn({
        let (store, request) = (Arc::clone(&store), request.clone());
        async move { store.backup_with(&request, Some(&Endless)).await }
    });
    let stage = bench.data().join(".backup-stage");
    for _ in 0..3000 {
        if stage.join("endless").exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(stage.join("endless").exists() && !task.is_finished());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(!stage.exists());
    // And the next one may begin.
    store.backup(&request).await.unwrap();
    store.close(CLOSE).await;
}

/// Breaks if the good copy of what is damaged goes with the older backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_lacks_a_part_lets_the_older_ones_stay() {
    let mut bench = Bench::new(false);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    let whole = store.backup(&request(&place, Some(1))).await.unwrap();
    bench.write(&store, &[START + 1]).await;
    store.compact_all().await.unwrap();
    let data = bench.data().join("store/metrics");
    let part = files_below(&data).into_iter().find(|f| f.contains("samples")).unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    let report = store.backup(&request(&place, Some(1))).await.unwrap();
    assert_eq!((report.damaged.len(), report.deleted_files), (1, 0), "{report}");
    // Those that lack the same part hold nothing of it, so they go, however long it stays damaged.
    for i in 2..4 {
        bench.clock.pass(60_000);
        bench.write(&store, &[START - DAY_MS + i]).await;
        let report = store.backup(&request(&place, Some(1))).await.unwrap();
        assert_eq!(report.damaged.len(), 1, "{report}");
        let names = list(&bench.settings(), &place.display().to_string()).await.unwrap();
        assert_eq!(names, [whole.name.clone(), report.name]);
    }
    store.close(CLOSE).await;
    let without = Bench::new(false);
    let clock = Arc::clone(&without.clock) as Arc<dyn Clock>;
    let told = restore(without.settings(), clock, &place.display().to_string(), None).await.unwrap();
    assert_eq!(told.lacking, 1);
    assert!(told.to_string().contains("it lacks 1 parts"), "{told}");
    bench.written.retain(|(_, ts), _| *ts == START);
    let mut copy = restored(&bench, &place, Some(&whole.name)).await;
    same(&mut copy).await;
}

/// Breaks if a manifest that cannot be read ends all backups, and nothing says how to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_manifest_is_named_with_what_to_do() {
    let mut bench = Bench::new(false);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    let old = store.backup(&request(&place, None)).await.unwrap();
    let new = store.backup(&request(&place, None)).await.unwrap();
    let path = |name: &str| place.join(format!("_backup/{name}.json"));
    let whole = std::fs::read(path(&old.name)).unwrap();
    std::fs::write(path(&old.name), &whole[..whole.len() / 2]).unwrap();
    // The newest one is made, and what the damaged one names is not known, so nothing is deleted.
    let told = store.backup(&request(&place, Some(3))).await.unwrap_err().to_string();
    let names = list(&bench.settings(), &place.display().to_string()).await.unwrap();
    let made = names.last().unwrap();
    assert_eq!((names.len(), names[1] == new.name), (3, true), "{names:?}");
    let complete = format!("backup `{made}` is complete, but older ones were not deleted: the manifest of backup");
    assert!(told.starts_with(&complete) && told.contains(&format!("`{}` is damaged", old.name)), "{told}");
    std::fs::write(path(&old.name), &whole).unwrap();
    std::fs::write(path(made), "").unwrap();
    let told = store.backup(&request(&place, None)).await.unwrap_err().to_string();
    assert!(told.contains(&format!("`{made}` is damaged; move `_backup/{made}.json` away")), "{told}");
    std::fs::remove_file(path(made)).unwrap();
    store.backup(&request(&place, Some(3))).await.unwrap();
    store.close(CLOSE).await;
}

/// Breaks if credentials that have ended make a backup of nothing, which takes the place of the older ones.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_store_that_cannot_be_read_there_is_no_backup() {
    let mut bench = Bench::new(true);
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.denied.store(true, Relaxed);
    let error = store.backup(&request(&place, Some(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let from = place.display().to_string();
    assert_eq!(list(&bench.settings(), &from).await.unwrap_err().kind(), ErrorKind::NotFound);
    faults.denied.store(false, Relaxed);
    let report = store.backup(&request(&place, Some(1))).await.unwrap();
    assert!(report.damaged.is_empty() && report.parts == 1, "{report}");
    store.close(CLOSE).await;
}

/// Breaks if the backups of a server that was set back to a copy of its disk count as older than those before, and so
/// are deleted as soon as they are made.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_set_back_makes_the_newest_backup() {
    let mut bench = Bench::new(false);
    let [place, data, old] = ["backups", "data", "old"].map(|name| bench.dir.path().join(name));
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    end(store).await;
    copy_dir(&data, &old);
    let then = bench.written.clone();
    let store = bench.open().await;
    for i in 1..4 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    store.backup(&request(&place, Some(1))).await.unwrap();
    end(store).await;
    std::fs::remove_dir_all(&data).unwrap();
    copy_dir(&old, &data);
    bench.written = then;
    let store = bench.open().await;
    bench.write(&store, &[START + 9]).await;
    let report = store.backup(&request(&place, Some(1))).await.unwrap();
    let names = list(&bench.settings(), &place.display().to_string()).await.unwrap();
    assert_eq!(names, [report.name]);
    let mut copy = restored(&bench, &place, None).await;
    same(&mut copy).await;
    store.close(CLOSE).await;
}

/// Breaks if a backup that was made while the clock was wrong drops its data when it is restored with that clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_goes_with_no_backup() {
    let mut bench = Bench { tune: |s| s.retention = Some(Duration::from_hours(30 * 24)), ..Bench::new(false) };
    let place = bench.dir.path().join("backups");
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    assert_eq!(store.expire().await.unwrap(), 0);
    bench.clock.0.fetch_add(40 * DAY_MS, Relaxed);
    store.backup(&request(&place, None)).await.unwrap();
    store.close(CLOSE).await;
    let copy = Bench { tune: bench.tune, written: bench.written.clone(), ..Bench::new(false) };
    copy.clock.0.fetch_add(40 * DAY_MS, Relaxed);
    let clock = Arc::clone(&copy.clock) as Arc<dyn Clock>;
    restore(copy.settings(), clock, &place.display().to_string(), None).await.unwrap();
    let store = copy.open().await;
    assert_eq!(store.expire().await.unwrap(), 0, "it is not due by the time that was trusted");
    copy.verify(&store).await;
    store.close(CLOSE).await;
}
