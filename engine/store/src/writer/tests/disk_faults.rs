//! Failures of write, sync and file creation: acknowledged data survives, and other data can be sent again.

use std::io::ErrorKind as Io;

use super::faulty_disk::{Call, FaultyDisk};
use super::*;

async fn write_all(rig: &Rig, count: i64) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    for n in 0..count {
        // A new series each time, so that definitions are at stake too; and one that all share.
        let name = format!("m{n}");
        let labels: &[(&str, &str)] = &[("__name__", &name)];
        let write = batch(&[(labels, &[(n, 1.0)]), (&[("__name__", "all")], &[(n, 1.0)])]);
        match rig.path.write_metrics(write).await {
            Ok(outcome) => {
                assert_eq!(outcome.samples, 2);
                acknowledged.push(n);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    acknowledged
}

fn times(rig: &Rig) -> Vec<i64> {
    let all: Vec<i64> = rig.read(&[Matcher::equal("__name__", "all")]).into_iter().map(|r| r.0).collect();
    let own: Vec<i64> = rig
        .read(&[Matcher::new("__name__", quiver_types::MatchOp::NotEqual, "all").unwrap()])
        .into_iter()
        .map(|r| r.0)
        .collect();
    assert_eq!(all, own, "writes are whole");
    all
}

#[tokio::test]
async fn any_single_failure_is_hidden() {
    for call in [Call::Create, Call::Append, Call::Sync, Call::SyncDir] {
        for after in 0..8 {
            let dir = TempDir::new().unwrap();
            let disk = FaultyDisk::default();
            let small = WriteSettings { segment_bytes: 3000, ..settings() };
            let rig = try_open(dir.path(), Arc::new(disk.clone()), small).unwrap();
            disk.fail(call, after, 1, Io::Other);
            let acknowledged = write_all(&rig, 8).await;
            assert_eq!(acknowledged, (0..8).collect::<Vec<_>>(), "{call:?} {after}");
            assert_eq!(times(&rig), acknowledged);
            let again = open(dir.path());
            assert_eq!(times(&again), acknowledged, "{call:?} {after}");
            assert_eq!(again.replayed.len(), 1);
        }
    }
}

#[tokio::test]
async fn lasting_failures_refuse_and_lose_nothing() {
    for call in [Call::Create, Call::Append, Call::Sync, Call::SyncDir] {
        for after in 0..5 {
            for count in [2, 3, 4, 6] {
                let dir = TempDir::new().unwrap();
                let disk = FaultyDisk::default();
                let small = WriteSettings { segment_bytes: 3000, ..settings() };
                let rig = try_open(dir.path(), Arc::new(disk.clone()), small).unwrap();
                disk.fail(call, after, count, Io::StorageFull);
                let mut acknowledged = write_all(&rig, 8).await;
                disk.heal();
                rig.path
                    .write_metrics(batch(&[
                        (&[("__name__", "m2")], &[(100, 1.0)]),
                        (&[("__name__", "all")], &[(100, 1.0)]),
                    ]))
                    .await
                    .unwrap();
                acknowledged.push(100);
                assert_eq!(times(&rig), acknowledged, "what is refused is not seen: {call:?} {after} {count}");
                let again = open(dir.path());
                let found = times(&again);
                assert!(acknowledged.iter().all(|t| found.contains(t)), "{call:?} {after} {count}: {found:?}");
                assert!(found.iter().all(|t| *t == 100 || (0..8).contains(t)));
            }
        }
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_recovers() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let reserve = WriteSettings { disk_reserve_bytes: 1000, ..settings() };
    let rig = try_open(dir.path(), Arc::new(disk.clone()), reserve).unwrap();
    disk.set_free_bytes(999);
    let error = rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap_err();
    assert_eq!((error.kind(), &*error.message), (ErrorKind::Unavailable, "disk is nearly full: 999 bytes are free"));
    let note = "writes are refused: the disk is nearly full: 999 bytes are free";
    assert_eq!((rig.path.trouble(), rig.path.note().as_deref()), (None, Some(note)));
    disk.heal();
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    disk.fail(Call::Append, 0, 100, Io::StorageFull);
    let error = rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap_err();
    assert_eq!((error.kind(), &*error.message), (ErrorKind::Unavailable, "disk is full"));
    assert_eq!(rig.path.note().as_deref(), Some("writes are refused: the disk is full"));
    assert_eq!(rig.read(&[]).len(), 1);
    disk.heal();
    rig.path.write_metrics(one("a", 3, 1.0)).await.unwrap();
    assert_eq!(rig.path.note(), None);
    let seen: Vec<i64> = open(dir.path()).read(&[]).into_iter().map(|r| r.0).collect();
    assert_eq!(seen, [1, 3]);
}

/// Breaks if a server that refuses each write is ready for more of them.
#[tokio::test]
async fn a_log_that_cannot_be_written_is_told() {
    for (error, told) in [(Io::StorageFull, false), (Io::FileTooLarge, false), (Io::PermissionDenied, true)] {
        for call in [Call::Create, Call::Append, Call::Sync] {
            let dir = TempDir::new().unwrap();
            let disk = FaultyDisk::default();
            // Anew each time: with a segment that is open no other one is created.
            let rig = try_open(dir.path(), Arc::new(disk.clone()), settings()).unwrap();
            disk.fail(call, 0, 100, error);
            for n in 0..4 {
                assert_eq!(rig.path.trouble().is_some(), told && n == 3, "{call:?} {n}");
                rig.path.write_metrics(one("a", n, 1.0)).await.unwrap_err();
            }
            let trouble = rig.path.trouble().unwrap_or_default();
            assert_eq!(trouble.starts_with("the write-ahead log could not be written for"), told, "{trouble}");
            disk.heal();
            rig.path.write_metrics(one("a", 9, 1.0)).await.unwrap();
            assert_eq!(rig.path.trouble(), None);
        }
    }
}

/// Breaks if writes are acknowledged that are only in a deleted file, which disappears with the process.
#[tokio::test]
async fn a_deleted_segment_takes_no_writes() {
    for level in [WalLevel::Sync, WalLevel::Os] {
        let dir = TempDir::new().unwrap();
        let mut rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { level, ..settings() }).unwrap();
        rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
        for path in segments(dir.path()) {
            std::fs::remove_file(path).unwrap();
        }
        // Its series are defined in what is gone, so it would be of no use in another segment.
        let error = rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        // Data that was acknowledged before is flushed to a part at once.
        let sealed = tokio::time::timeout(Duration::from_mins(1), rig.sealed.recv()).await.unwrap().unwrap();
        assert_eq!(sealed.samples(), 1);
        rig.path.write_metrics(one("a", 3, 1.0)).await.unwrap();
        assert_eq!(rig.read(&[]), [(1, 1.0), (3, 1.0)]);
        assert_eq!(open(dir.path()).read(&[]), [(3, 1.0)], "a new generation, which is whole");
    }
}

/// Breaks if writes are acknowledged that are in a folder which no later start reads: the disk was unmounted, and will be
/// mounted again over it.
#[tokio::test]
async fn another_folder_takes_no_writes() {
    let dir = TempDir::new().unwrap();
    let (own, away) = (dir.path().join("wal"), dir.path().join("away"));
    let rig = open(&own);
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    std::fs::rename(&own, &away).unwrap();
    std::fs::create_dir(&own).unwrap();
    // The open segment is still in the old folder.
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    rig.path.seal().await.unwrap().unwrap();
    for n in 3..7 {
        let error = rig.path.write_metrics(one("a", n, 1.0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    let trouble = rig.path.trouble().unwrap();
    assert!(trouble.contains("is another folder than the one in use; put it back"), "{trouble}");
    assert!(segments(&own).is_empty());
    std::fs::remove_dir(&own).unwrap();
    std::fs::rename(&away, &own).unwrap();
    rig.path.write_metrics(one("a", 7, 1.0)).await.unwrap();
    assert_eq!(rig.path.trouble(), None);
    let seen: Vec<i64> = open(&own).read(&[]).into_iter().map(|r| r.0).collect();
    assert_eq!(seen, [1, 2, 7]);
}

#[tokio::test]
async fn one_sync_serves_many_writes() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let rig = Arc::new(try_open(dir.path(), Arc::new(disk.clone()), settings()).unwrap());
    let writes: Vec<_> = (0..200)
        .map(|n| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move { rig.path.write_metrics(one("a", n, 1.0)).await })
        })
        .collect();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    assert!(disk.calls(Call::Sync) < 200, "{} syncs", disk.calls(Call::Sync));
    assert_eq!(rig.read(&[]).len(), 200);
}

#[tokio::test]
async fn level_os_flushes_what_could_not_be_synced() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let os = WriteSettings { level: WalLevel::Os, ..settings() };
    let mut rig = try_open(dir.path(), Arc::new(disk.clone()), os).unwrap();
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    disk.fail(Call::Sync, 0, 1, Io::Other);
    let sealed = tokio::time::timeout(Duration::from_mins(1), rig.sealed.recv()).await.unwrap().unwrap();
    assert_eq!(sealed.samples(), 2);
    rig.path.write_metrics(one("a", 3, 1.0)).await.unwrap();
    assert_eq!(open(dir.path()).read(&[]).len(), 3);
}

/// What lies unsynced in a segment that is given up is reached by no later sync.
#[tokio::test]
async fn level_os_flushes_what_a_given_up_segment_holds() {
    let dir = TempDir::new().unwrap();
    let disk = FaultyDisk::default();
    let os = WriteSettings { level: WalLevel::Os, ..settings() };
    let mut rig = try_open(dir.path(), Arc::new(disk.clone()), os).unwrap();
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    disk.fail(Call::Append, 0, 1, Io::Other);
    rig.path.write_metrics(one("a", 3, 1.0)).await.unwrap();
    let sealed = tokio::time::timeout(Duration::from_mins(1), rig.sealed.recv()).await.unwrap().unwrap();
    assert_eq!(sealed.samples(), 3);
    assert_eq!(open(dir.path()).read(&[]).len(), 3);
}

/// From the first segment that moves on a generation counts as set aside, so the next try moves the rest, and all of them
/// go when it is retired.
#[tokio::test]
async fn setting_aside_goes_on_where_it_failed() {
    for after in 0..3 {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::default();
        let small = WriteSettings { segment_bytes: 1, ..settings() };
        let rig = try_open(dir.path(), Arc::new(disk.clone()), small).unwrap();
        write_all(&rig, 4).await;
        let sealed = rig.path.seal().await.unwrap().unwrap();
        let (held, count) = (dir.path().join(HELD), segments(dir.path()).len());
        assert!(count > 3, "{count}");
        disk.fail(Call::Rename, after, 1, Io::Other);
        rig.path.set_aside(sealed.id()).unwrap_err();
        rig.path.set_aside(sealed.id()).unwrap();
        assert_eq!((segments(dir.path()).len(), segments(&held).len()), (0, count), "{after}");
        let started = open(dir.path());
        assert_eq!((started.aside.len(), started.replayed.len()), (1, 0), "{after}");
        rig.path.retire(sealed.id());
        assert_eq!(segments(&held).len(), 0, "{after}");
        assert!(open(dir.path()).aside.is_empty(), "{after}");
    }
}

#[tokio::test]
async fn writes_do_not_wait_for_what_was_set_aside() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    let mut sealed = Vec::new();
    for n in 0..SMALL_GENERATIONS_MAX[0] as i64 {
        rig.path.write_metrics(one("a", n, 1.0)).await.unwrap();
        sealed.push(rig.path.seal().await.unwrap().unwrap());
    }
    assert!(rig.path.runs_ahead());
    for generation in &sealed {
        generation.set_aside();
    }
    assert!(!rig.path.runs_ahead());
    assert_eq!(rig.path.unflushed().0, 1, "the open one");
}

/// Floors of these are kept: the next start must know a segment as flushed that could not be deleted.
#[tokio::test]
async fn writers_of_all_segments_are_known() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    rig.path.write_metrics(one("a", 1, 1.0)).await.unwrap();
    let held = rig.path.seal().await.unwrap().unwrap();
    rig.path.set_aside(held.id()).unwrap();
    let aside = held_id(held.id()).writer;
    assert_eq!(rig.path.writers_with_segments().unwrap(), std::collections::HashSet::from([aside]));
    rig.path.write_metrics(one("a", 2, 1.0)).await.unwrap();
    let both = std::collections::HashSet::from([aside, held.writer]);
    assert_eq!(rig.path.writers_with_segments().unwrap(), both);
    // A segment may be called anything.
    std::fs::rename(segments(dir.path()).remove(0), dir.path().join("saved.wal")).unwrap();
    assert_eq!(rig.path.writers_with_segments().unwrap(), both);
}
