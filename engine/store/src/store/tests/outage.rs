//! An hour without the object store, in simulated time (promise F3): ingest goes on into the spool up to its limit, is
//! refused above it, nothing is lost, the store is not hammered, and the queue drains by itself when it is back.

use super::*;
use crate::compact::Extent;

/// Real time that background work may take to settle after a step of simulated time.
const SETTLES: Duration = Duration::from_mins(1);
const STEP: Duration = Duration::from_secs(10);

/// Moves simulated time on, and gives background work the real time to do what is due.
async fn pass(settings: &StoreSettings, time: Duration) {
    let mut left = time;
    while !left.is_zero() {
        settings.timer.advance(STEP.min(left));
        left = left.saturating_sub(STEP);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets time pass while something waits for it.
async fn meanwhile<T>(settings: &StoreSettings, work: impl Future<Output = T>) -> T {
    let passing = async {
        loop {
            pass(settings, STEP).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = passing => unreachable!("time goes on for ever"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_without_the_object_store() {
    let mut bench = Bench::new(true);
    bench.timer = Timer::moved_by_hand();
    bench.tune = |s| s.spool_limit_bytes = 250_000;
    let settings = bench.settings();
    let store = bench.open().await;
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    // Before the first upload: what is in the store only cannot be read now.
    faults.down.store(true, Relaxed);
    bench.write(&store, &[START]).await;
    let (before, mut refused_at) = (faults.requests.load(Relaxed), None);
    for minute in 1..=60i64 {
        pass(&settings, Duration::from_mins(1)).await;
        match bench.try_write(&store, &[START + minute]).await {
            Ok(()) => {
                assert_eq!(refused_at, None, "the spool does not empty itself while the store is down");
                store.flush_sealed().await.unwrap();
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                refused_at.get_or_insert(minute);
            }
        }
        if minute % 20 == 0 {
            bench.verify(&store).await;
        }
    }
    let refused_at = refused_at.expect("the spool has a limit");
    assert!(refused_at > 10, "it takes much before: {refused_at}");
    let asked = faults.requests.load(Relaxed) - before;
    // Upload and commit objects try again every 20 s at most, each with the repeats that an operation may make within a
    // second, and four files at a time.
    assert!((60..10_000).contains(&asked), "{asked} requests in an hour");
    // A restart with the store still down loses nothing either.
    meanwhile(&settings, store.close(CLOSE)).await;
    drop(store);
    let store = meanwhile(&settings, bench.open()).await;
    bench.verify(&store).await;
    assert!(bench.try_write(&store, &[START + 100]).await.is_err(), "the spool is full as before");
    let notes = store.notes();
    assert!(notes.iter().any(|note| note.contains("writes are refused") && note.contains("spool")), "{notes:?}");
    let waits = "parts could not be brought to the object store for ";
    let began = std::time::Instant::now();
    while !store.notes().iter().any(|note| note.starts_with(waits)) {
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "that nothing goes up is not told: {:?}", store.notes());
    }

    faults.down.store(false, Relaxed);
    let began = std::time::Instant::now();
    // Nobody tells it: only time passes.
    while store.visible().parts.iter().any(|p| p.meta.place == Place::Spool) || !store.notes().is_empty() {
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "the queue does not drain by itself: {:?}", store.notes());
    }
    bench.verify(&store).await;
    bench.write(&store, &[START + 200]).await;
    meanwhile(&settings, store.flush_all()).await.unwrap();
    store.clean().await.unwrap();
    assert!(files_below(&bench.data().join("parts")).is_empty());
    bench.verify(&store).await;
    meanwhile(&settings, store.close(CLOSE)).await;
    drop(store);
    bench.sound().await;
}

/// A store may refuse deletions alone, for want of a right: nobody would notice before its bill.
#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_are_refused_are_told() {
    let mut bench = Bench::new(true);
    bench.timer = Timer::moved_by_hand();
    let settings = bench.settings();
    let store = bench.open().await;
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    for at in [START, START + 1] {
        bench.write(&store, &[at]).await;
        meanwhile(&settings, store.flush_all()).await.unwrap();
    }
    // What a query reads stays.
    let snapshot = store.source().snapshot();
    meanwhile(&settings, store.compact_all()).await.unwrap();
    faults.denied.store(true, Relaxed);
    drop(snapshot);
    let told = || store.notes().iter().any(|note| note.starts_with("files that nobody reads any more could not be"));
    let began = std::time::Instant::now();
    while !told() {
        store.core.wake.clean.notify_one();
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "it is not told: {:?}", store.notes());
    }
    faults.denied.store(false, Relaxed);
    let began = std::time::Instant::now();
    while told() {
        store.core.wake.clean.notify_one();
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "it is told still: {:?}", store.notes());
    }
    bench.verify(&store).await;
    meanwhile(&settings, store.close(CLOSE)).await;
}

/// What waits for its upload is read like everything else: a flipped bit is found, named, and told.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_in_the_spool_is_named() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    bench.remote.as_ref().unwrap().faults.down.store(true, Relaxed);
    let days = [START - DAY_MS, START];
    for at in days {
        bench.write(&store, &[at]).await;
        store.flush_sealed().await.unwrap();
    }
    let mut files = files_below(&bench.data().join("parts"));
    files.retain(|file| file.ends_with(".series.parquet"));
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&files[0], bytes).unwrap();
    let name = Path::new(&files[0]).file_name().unwrap().to_str().unwrap();

    let snapshot = store.source().snapshot();
    let select = async |at: Millis, partial: bool| {
        let stats = quiver_types::ReadStats::default();
        if partial {
            stats.left_out.allow();
        }
        let selector = quiver_types::SeriesSelector { matchers: vec![], range: MillisRange::new(at, at), labels: None };
        let found = snapshot.select(&Access::full(), &selector, &stats).await;
        (found.map(|selected| selected.table.len()), stats.left_out.texts())
    };
    let (found, told) = select(days[0], true).await;
    assert_eq!((found.unwrap(), told.len()), (0, 1));
    assert!(told[0].contains(name), "{told:?}");
    let error = select(days[0], false).await.0.unwrap_err();
    assert!(error.kind() == ErrorKind::Damaged && error.message.contains(name), "{error}");
    let (found, told) = select(days[1], true).await;
    assert_eq!((found.unwrap(), told.len()), (10, 0), "the other file answers");
    store.close(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_ended_hold_up_no_writes() {
    let (mut bench, store) = Bench::flushed(true).await;
    end(store).await;
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.denied.store(true, Relaxed);
    let store = bench.open().await;
    bench.write(&store, &[START + 1]).await;
    store.flush_sealed().await.unwrap();
    faults.denied.store(false, Relaxed);
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

/// Breaks if the end of the server waits for a request that nobody answers (promise F9).
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_does_not_hold_up_the_end() {
    let mut bench = Bench { tune: |s| s.store_retry_budget = Duration::from_hours(10), ..Bench::new(true) };
    let store = bench.open().await;
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.hang_next.store(u64::MAX, Relaxed);
    bench.write(&store, &[START]).await;
    store.flush_sealed().await.unwrap();
    // It waits for the upload, too.
    let compaction = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.compactor.request(Extent::All).await }
    });
    let flushing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.flush_all().await }
    });
    let began = std::time::Instant::now();
    while faults.hang_next.load(Relaxed) == u64::MAX {
        assert!(began.elapsed() < SETTLES, "nothing is uploaded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let closed = tokio::time::timeout(SETTLES, store.close(CLOSE)).await;
    assert!(closed.is_ok(), "the upload is waited for");
    assert_eq!(compaction.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    let flushed = tokio::time::timeout(SETTLES, flushing).await.expect("who waits for the upload is told");
    assert!(flushed.unwrap().is_err());
    drop(store);
    faults.hang_next.store(0, Relaxed);
    let store = bench.open().await;
    store.flush_all().await.unwrap();
    bench.verify(&store).await;
    end(store).await;
    bench.sound().await;
}

/// Waits until the last connection to the catalog has gone, which takes the log into the database and removes it: a moment after
/// the store.
async fn catalog_closes(bench: &Bench) {
    let (log, began) = (bench.data().join("quiver.db-wal"), std::time::Instant::now());
    while log.exists() {
        assert!(began.elapsed() < SETTLES, "the catalog stays open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Breaks if rows of an outage are gone in silence with the catalog's record of them.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_old_catalog_does_not_know_is_told() {
    let (mut bench, store) = Bench::flushed(true).await;
    end(store).await;
    catalog_closes(&bench).await;
    let database = bench.data().join("quiver.db");
    let old = std::fs::read(&database).unwrap();
    let faults = Arc::clone(&bench.remote.as_ref().unwrap().faults);
    faults.down.store(true, Relaxed);
    let store = bench.open().await;
    bench.write(&store, &[START + 1]).await;
    store.flush_sealed().await.unwrap();
    assert_eq!(store.notes(), Vec::<String>::new());
    end(store).await;
    catalog_closes(&bench).await;
    std::fs::write(&database, &old).unwrap();
    faults.down.store(false, Relaxed);
    let store = bench.open().await;
    let notes = store.notes();
    assert!(notes.len() == 1 && notes[0].contains("are named by nobody") && notes[0].contains("rebuild"), "{notes:?}");
    end(store).await;
    bench.rebuild().await;
    let store = bench.open().await;
    assert_eq!(store.notes(), Vec::<String>::new());
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    end(store).await;
    bench.sound().await;
}

/// Breaks if a rebuild would find nothing of what was committed for days, and nobody was told.
#[tokio::test(flavor = "multi_thread")]
async fn commit_objects_that_cannot_be_written_are_told() {
    let mut bench = Bench::new(false);
    bench.timer = Timer::moved_by_hand();
    let settings = bench.settings();
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    meanwhile(&settings, store.flush_all()).await.unwrap();
    let (folder, aside) = (bench.data().join("store/_catalog"), bench.dir.path().join("aside"));
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "no folder").unwrap();
    bench.write(&store, &[START + 1]).await;
    meanwhile(&settings, store.flush_sealed()).await.unwrap();
    let began = std::time::Instant::now();
    while !store.notes().iter().any(|note| note.starts_with("commit objects could not be written for ")) {
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "that they are not written is not told: {:?}", store.notes());
    }
    assert_eq!(store.trouble().await, None, "queries and writes go on");
    bench.verify(&store).await;
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    let began = std::time::Instant::now();
    while !store.notes().is_empty() {
        pass(&settings, STEP).await;
        assert!(began.elapsed() < SETTLES, "it does not go on by itself: {:?}", store.notes());
    }
    meanwhile(&settings, store.close(CLOSE)).await;
    drop(store);
    bench.sound().await;
}
