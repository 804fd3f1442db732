//! What is dropped by age and by size, and that a wrong clock never drops more.

use std::collections::HashSet;

use quiver_types::logs::RecordMarks;
use quiver_types::spans::{ContextFields, NO_START, SpanFields, SpansBuilder};

use super::*;
use crate::catalog::{Catalog, Change, NextObject};

/// Days 0 to `days` before today, each with samples; flushed.
async fn fill(bench: &mut Bench, store: &Store, days: i64) {
    let times: Vec<_> = (0..=days).map(|day| START - day * DAY_MS).collect();
    bench.write(store, &times).await;
    store.flush_all().await.unwrap();
}

fn days_left(store: &Store) -> usize {
    let days: std::collections::BTreeSet<_> = store.visible().parts.iter().map(|p| p.meta.day).collect();
    days.len()
}

fn five_days(settings: &mut StoreSettings) {
    settings.retention = Some(Duration::from_hours(120));
    settings.drop_grace = Duration::ZERO;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_drops_whole_days_when_they_are_due() {
    let mut bench = Bench::new(false);
    bench.tune = five_days;
    let store = bench.open().await;
    bench.write(&store, &[START, START - DAY_MS]).await;
    store.flush_all().await.unwrap();
    store.expire().await.unwrap();
    let day_end = START - DAY_MS - 2 * 3_600_000 + DAY_MS;
    bench.clock.pass(day_end + 5 * DAY_MS - 1 - START);
    assert_eq!(store.expire().await.unwrap(), 0, "nothing early");
    bench.clock.pass(1);
    assert_eq!(store.expire().await.unwrap(), 1);
    bench.written.retain(|(_, ts), _| *ts == START);
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    store.clean().await.unwrap();
    let files = files_below(&bench.data().join("store/metrics"));
    assert!(files.iter().all(|f| f.contains("2024-10-04")) && !files.is_empty(), "{files:?}");
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_table_has_its_own() {
    let mut bench = Bench::new(false);
    bench.tune = |s| {
        s.retention = Some(Duration::from_hours(120));
        s.table_retention = [("metrics".to_owned(), None)].into();
    };
    let store = bench.open().await;
    bench.write(&store, &[START]).await;
    store.flush_all().await.unwrap();
    store.expire().await.unwrap();
    bench.clock.pass(100 * DAY_MS);
    assert_eq!(store.expire().await.unwrap(), 0);
    bench.verify(&store).await;
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_drops_nothing_and_says_so() {
    for jump in [40 * DAY_MS, -40 * DAY_MS] {
        let mut bench = Bench::new(false);
        bench.tune = five_days;
        let store = bench.open().await;
        fill(&mut bench, &store, 4).await;
        assert_eq!(store.expire().await.unwrap(), 0);
        assert_eq!(store.notes(), Vec::<String>::new());
        bench.clock.0.fetch_add(jump, Relaxed);
        for _ in 0..10 {
            assert_eq!(store.expire().await.unwrap(), 0, "{jump}");
            bench.clock.pass(3_600_000);
        }
        let side = if jump > 0 { "40.0 days ahead of" } else { "40.0 days behind" };
        // Backwards it is believed after hours: less is due by it.
        assert_eq!(store.notes().first().is_some_and(|n| n.contains(side)), jump > 0, "{:?}", store.notes());
        bench.verify(&store).await;
        end(store).await;
        // Nor does a restart make it believed; commits of the jumped clock do not either.
        let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
        let report = check_with(bench.settings(), clock, bench.storage()).await.unwrap();
        assert_eq!(report.to_string().contains("note: the clock of this machine is"), jump > 0, "{report}");
        let store = bench.open().await;
        for _ in 0..10 {
            assert_eq!(store.expire().await.unwrap(), 0, "{jump}, after a restart");
            bench.clock.pass(3_600_000);
        }
        bench.verify(&store).await;
        store.close(CLOSE).await;
    }
}

/// Days of data, of which none is due by their own clock, and a server whose clock has leapt by 40 days.
async fn after_a_leap() -> (Bench, Arc<Store>) {
    let mut bench = Bench::new(false);
    bench.tune = five_days;
    let store = bench.open().await;
    fill(&mut bench, &store, 4).await;
    assert_eq!(store.expire().await.unwrap(), 0);
    bench.clock.0.fetch_add(40 * DAY_MS, Relaxed);
    (bench, store)
}

/// Breaks if a server whose clock is wrong believes it because of its own rules.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_writes_itself_confirms_no_clock() {
    let (mut bench, store) = after_a_leap().await;
    for _ in 0..10 {
        let mut batch = MetricsBatch::default();
        let at = batch.push_series(labels(500).canonical());
        batch.push_sample(at, bench.clock.now_ms(), 1.0, 0);
        store.write_own_metrics(batch).await.unwrap();
        store.flush_all().await.unwrap();
        assert_eq!(store.expire().await.unwrap(), 0);
        bench.clock.pass(3_600_000);
    }
    assert_eq!(days_left(&store), 6);
    // The samples of senders do.
    bench.write(&store, &[bench.clock.now_ms()]).await;
    assert_eq!(store.expire().await.unwrap(), 5);
    store.close(CLOSE).await;
}

/// Breaks if a server whose clock is wrong believes it because senders give no times, so that rows bear that clock.
#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_time_confirm_no_clock() {
    let (bench, store) = after_a_leap().await;
    let sample = |now: Millis, arrival| {
        let mut batch = MetricsBatch { arrival, ..MetricsBatch::default() };
        let at = batch.push_series(labels(500).canonical());
        batch.push_sample(at, now, 1.0, 0);
        batch
    };
    let row = |now: Millis, arrival: Option<Millis>| {
        let mut batch = LogsBatch { services: vec!["".into()], names: vec!["_msg".into()], ..LogsBatch::default() };
        let stream = batch.push_stream(&[]);
        batch.push_field(0, "m");
        batch.end_row(now * 1_000_000, stream, 0, RecordMarks::default());
        batch.arrival = arrival.map(|ms| ms * 1_000_000);
        batch
    };
    let span = |now: Millis| {
        let mut spans = SpansBuilder::default();
        let context = spans.context(&ContextFields::default());
        let (ns, trace_id, span_id) = (now * 1_000_000, [1; 16], [1; 8]);
        let times = SpanFields { start: ns, end: ns, received: ns, ..SpanFields::default() };
        spans.span(&SpanFields { trace_id, span_id, context, marks: NO_START, ..times });
        spans.finish()
    };
    for _ in 0..10 {
        let now = bench.clock.now_ms();
        store.write_metrics(sample(now, Some(now))).await.unwrap();
        store.write_logs(row(now, Some(now))).await.unwrap();
        store.write_spans(span(now)).await.unwrap();
        store.flush_all().await.unwrap();
        assert_eq!(store.expire().await.unwrap(), 0);
        bench.clock.pass(3_600_000);
    }
    assert_eq!(days_left(&store), 6);
    // Rows whose senders gave that time do.
    let now = bench.clock.now_ms();
    store.write_logs(row(now, None)).await.unwrap();
    assert_eq!(store.expire().await.unwrap(), 5);
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_off_for_long_goes_on() {
    let mut bench = Bench::new(false);
    bench.tune = five_days;
    let store = bench.open().await;
    fill(&mut bench, &store, 3).await;
    store.expire().await.unwrap();
    end(store).await;
    let later = START + 40 * DAY_MS;
    bench.clock.0.store(later, Relaxed);
    let store = bench.open().await;
    let mut dropped = 0;
    for hour in 0..=7 {
        assert_eq!(dropped, 0, "not before the clock has held");
        bench.write(&store, &[later + hour * 3_600_000]).await;
        store.flush_all().await.unwrap();
        dropped = store.expire().await.unwrap();
        if dropped > 0 {
            break;
        }
        bench.clock.pass(3_600_000);
    }
    assert_eq!(dropped, 4, "then all that is due");
    bench.written.retain(|(_, ts), _| *ts >= later);
    bench.verify(&store).await;
    assert_eq!(store.notes(), Vec::<String>::new());
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_drops_some_days_only_and_files_stay_for_a_while() {
    let mut bench = Bench::new(false);
    bench.tune = |s| s.retention = Some(Duration::from_hours(480));
    let store = bench.open().await;
    fill(&mut bench, &store, 19).await;
    store.expire().await.unwrap();
    bench.clock.pass(12 * DAY_MS);
    let root = bench.data().join("store/metrics");
    let files = || files_below(&root).len();
    let before = files();
    assert_eq!(store.expire().await.unwrap(), 7);
    assert_eq!((store.expire().await.unwrap(), days_left(&store)), (4, 9));
    store.flush_all().await.unwrap();
    store.clean().await.unwrap();
    assert_eq!(files(), before, "for `quiver store undrop`");
    bench.clock.0.fetch_add(40 * DAY_MS, Relaxed);
    store.clean().await.unwrap();
    assert_eq!(files(), before, "no jump ends the grace");
    end(store).await;
    let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let again = crate::undrop::undrop(bench.settings(), Arc::clone(&clock), None).await.unwrap();
    assert_eq!(again, 11);
    assert_eq!(crate::undrop::undrop(bench.settings(), Arc::clone(&clock), None).await.unwrap(), 0);
    bench.tune = |s| s.retention = None;
    let store = bench.open().await;
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    end(store).await;
    // Nor does a rebuild take them for removed.
    rebuild_with(bench.settings(), clock, None).await.unwrap();
    bench.tune = |s| s.retention = Some(Duration::from_hours(480));
    bench.clock.0.fetch_sub(40 * DAY_MS, Relaxed);
    let store = bench.open().await;
    bench.verify(&store).await;
    while store.expire().await.unwrap() > 0 {}
    assert_eq!(days_left(&store), 9);
    store.flush_all().await.unwrap();
    store.clean().await.unwrap();
    bench.clock.1.fetch_add(6 * 3_600_000, Relaxed);
    store.clean().await.unwrap();
    assert_eq!(files() * 20, before * 9);
    end(store).await;
    bench.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_days_go_when_the_store_is_too_large() {
    let mut bench = Bench::new(true);
    let store = bench.open().await;
    fill(&mut bench, &store, 9).await;
    let bytes = |store: &Store| store.visible().parts.iter().map(|p| p.meta.bytes).sum::<u64>();
    let all = bytes(&store);
    end(store).await;
    // Half of it, by a limit that the type of `tune` allows.
    bench.tune = |s| s.size_max = Some(1);
    let mut settings = bench.settings();
    settings.size_max = Some(all / 2);
    let overrides = StoreOverrides { storage: bench.storage(), wal_disk: None };
    let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let store = Store::open_with(settings, clock, overrides).await.unwrap();
    store.expire().await.unwrap();
    assert!(bytes(&store) <= all / 2 && days_left(&store) >= 4, "{} of {all}", bytes(&store));
    let first = store.visible().parts.iter().map(|p| p.meta.min_ts).min().unwrap();
    let kept = bench.written.len();
    bench.written.retain(|(_, ts), _| *ts >= first);
    assert!(bench.written.len() < kept);
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    assert!(
        store.clean().await.unwrap() > 0 || store.metrics().iter().any(|m| m.name == "quiver_cleaner_queue_length")
    );
    end(store).await;
    let store = bench.open().await;
    store.expire().await.unwrap();
    assert_eq!(days_left(&store), 1, "the newest day stays");
    end(store).await;
    bench.sound().await;
}

/// Rows of days to come do not make the day at hand one of those that may go.
#[tokio::test(flavor = "multi_thread")]
async fn the_day_at_hand_stays_when_the_store_is_too_large() {
    let mut bench = Bench::new(false);
    bench.tune = |s| (s.retention, s.size_max) = (None, Some(1));
    let store = bench.open().await;
    bench.write(&store, &[START - DAY_MS, START, START + 100 * DAY_MS, START + 300 * DAY_MS]).await;
    store.flush_all().await.unwrap();
    store.expire().await.unwrap();
    assert_eq!(days_left(&store), 2);
    bench.written.retain(|(_, ts), _| [START, START + 300 * DAY_MS].contains(ts));
    bench.verify(&store).await;
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_known() {
    let mut bench = Bench::new(false);
    bench.tune = five_days;
    let store = bench.open().await;
    fill(&mut bench, &store, 4).await;
    fill(&mut bench, &store, 4).await;
    store.expire().await.unwrap();
    let lose = |n| store.core.catalog.lose_answers.store(n, Relaxed);
    lose(1);
    store.compact_all().await.unwrap();
    assert_eq!(levels(&store), [2; 5], "what readers see is what the catalog says");
    bench.clock.pass(3 * DAY_MS);
    lose(2);
    assert_eq!(store.expire().await.unwrap(), 2);
    let (_, live) = store.core.catalog.live_parts().await.unwrap();
    assert_eq!(live.len(), 3);
    assert_eq!(levels(&store), [2; 3]);
    store.compact_all().await.unwrap();
    end(store).await;
    bench.sound().await;
}

/// What took the place of a part may be gone before the files of that part, which a query holds.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_replaced_is_not_brought_back() {
    let mut bench = Bench::new(false);
    let store = bench.open().await;
    for i in 0..2 {
        bench.write(&store, &[START + i]).await;
        store.flush_all().await.unwrap();
    }
    let held = store.core_snapshot();
    store.compact_all().await.unwrap();
    bench.write(&store, &[START + 2]).await;
    store.compact_all().await.unwrap();
    store.clean().await.unwrap();
    assert_eq!((levels(&store), store.core.catalog.removed_count().await.unwrap()), (vec![2], 2));
    store.close(CLOSE).await;
    drop((store, held));
    let clock = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let again = async || crate::undrop::undrop(bench.settings(), Arc::clone(&clock), None).await.unwrap();
    assert_eq!(again().await, 0);
    rebuild_with(bench.settings(), Arc::clone(&clock), None).await.unwrap();
    assert_eq!(again().await, 0, "after a rebuild");
    let store = bench.open().await;
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    store.clean().await.unwrap();
    end(store).await;
    bench.sound().await;
}

/// A server that is killed between writing a commit object and noting that: bringing parts back must not make the object
/// another server's.
#[tokio::test(flavor = "multi_thread")]
async fn parts_come_back_though_their_removal_was_not_noted() {
    let mut bench = Bench::new(false);
    let store = bench.open().await;
    fill(&mut bench, &store, 2).await;
    end(store).await;
    let (data, clock) = (bench.settings().data_dir, Arc::clone(&bench.clock) as Arc<dyn Clock>);
    let catalog = Catalog::open(&data.join("quiver.db"), Arc::clone(&clock)).await.unwrap();
    let (_, live) = catalog.live_parts().await.unwrap();
    let removed = vec![live[0].id];
    let commit = catalog.commit(&Change { removed, ..Change::default() }).await.unwrap();
    let NextObject::Ready(object) = catalog.next_object(&HashSet::new()).await.unwrap() else { panic!("one waits") };
    assert_eq!(object.commit, commit);
    let storage = Storage::local(&data.join("store"), &bench.settings());
    let taken = storage.create(&crate::layout::commit_key(commit), object.body(None).into()).await.unwrap();
    assert_eq!(taken, None);
    catalog.close().await;
    assert_eq!(crate::undrop::undrop(bench.settings(), clock, None).await.unwrap(), 1);
    let store = bench.try_open().await.expect("the store is ours");
    bench.verify(&store).await;
    store.flush_all().await.unwrap();
    end(store).await;
    bench.sound().await;
}
